// What the engine asks of a request before it takes it.
#ifndef TLM_SERVER_BATCHING_REQUEST_CHECK_H_
#define TLM_SERVER_BATCHING_REQUEST_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/batching/request.h"

namespace tlm {

// OK when no step can fail because of it: see Engine::Submit, whose INVALID_ARGUMENT this is.
// `max_outputs`: of one prompt. CHECKs what a caller's code decides: token streams, and that
// exactly one kind of work is set.
absl::Status CheckRequest(const Request& request, int64_t max_context, int64_t max_outputs);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_CHECK_H_
