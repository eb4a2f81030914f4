// The flags of commands that generate text: how tokens are drawn, when an output ends, when it
// runs.
#ifndef TLM_CLIENT_CLI_BASE_SAMPLING_FLAGS_H_
#define TLM_CLIENT_CLI_BASE_SAMPLING_FLAGS_H_

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

std::span<const std::string_view> SamplingFlagNames();

// Sets model, sampling, stopping, scheduling and cache; what was not given stays unset.
// INVALID_ARGUMENT when the flags contradict each other; which values a server accepts is for the
// server to say.
absl::Status SetGenerationFromFlags(v1::GenerateRequest* request);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_SAMPLING_FLAGS_H_
