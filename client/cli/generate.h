// Builds the request of `tlm generate`.
#ifndef TLM_CLIENT_CLI_GENERATE_H_
#define TLM_CLIENT_CLI_GENERATE_H_

#include <istream>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

// Reads the flags and the prompt argument; fields whose flags were not given stay unset.
// INVALID_ARGUMENT unless there is exactly one prompt, in valid UTF-8.
absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags(const Arguments& arguments,
                                                             std::istream* in);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_GENERATE_H_
