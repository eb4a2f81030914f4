// The request of `tlm forward`.
#ifndef TLM_CLIENT_CLI_FORWARD_REQUEST_H_
#define TLM_CLIENT_CLI_FORWARD_REQUEST_H_

#include <istream>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "tlm/v1/forward.pb.h"

namespace tlm::cli {

// From the flags and the prompts among the arguments, asking for whole rows. INVALID_ARGUMENT when
// there is no sequence, a prompt is not valid UTF-8, or a flag's value is none of those it may
// have.
absl::StatusOr<v1::ForwardRequest> ForwardRequestFromFlags(const Arguments& arguments,
                                                           std::istream* in);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_FORWARD_REQUEST_H_
