// The request of `tlm generate`.
#ifndef TLM_CLIENT_CLI_GENERATE_REQUEST_H_
#define TLM_CLIENT_CLI_GENERATE_REQUEST_H_

#include <istream>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

// From the flags and the prompt among the arguments; what was not given stays unset.
// INVALID_ARGUMENT when there is not exactly one prompt, or it is not valid UTF-8.
absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags(const Arguments& arguments,
                                                             std::istream* in);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_GENERATE_REQUEST_H_
