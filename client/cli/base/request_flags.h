// Flags that the requests of several commands share.
#ifndef TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_
#define TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/base/flag_types.h"
#include "tlm/v1/generate.pb.h"

ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(std::string, request_id);
ABSL_DECLARE_FLAG(std::optional<bool>, add_special_tokens);
ABSL_DECLARE_FLAG(tlm::cli::IdList, prompt_ids);
ABSL_DECLARE_FLAG(tlm::cli::IdLists, ids);
ABSL_DECLARE_FLAG(std::optional<bool>, logprobs);
ABSL_DECLARE_FLAG(uint32_t, top_logprobs);

namespace tlm::cli {

// The flags of commands that generate text: sampling, stopping, scheduling.
inline constexpr char kSamplingFlags[] =
    " temperature top_k top_p min_p typical_p repetition_penalty presence_penalty "
    "frequency_penalty "
    "seed logit_bias allowed_token_ids banned_token_ids max_new_tokens min_new_tokens stop "
    "stop_token_ids ignore_eos include_stop_in_output priority soft_time_limit bypass_prefix_cache "
    "cache_salt speculation max_draft_tokens ";

// The flags that constrain an output.
inline constexpr char kConstraintFlags[] =
    " json_schema json_object regex grammar choice structural_tag json_compact json_any_order "
    "json_any_escapes ";

// Returns the contents of the file `path` that a flag names, which must be valid UTF-8. A `path`
// that begins with { or [ is itself the content: JSON. INVALID_ARGUMENT, naming the flag, if the
// file cannot be read, is not UTF-8 or is longer than gRPC's default message limit.
absl::StatusOr<std::string> ReadFlagFile(std::string_view flag, const std::string& path);

// Sets model, sampling, stopping, scheduling, cache and speculation from the flags that were given.
// INVALID_ARGUMENT if the flags contradict each other; the server checks the values.
absl::Status SetGenerationFromFlags(v1::GenerateRequest* request);

// Sets constraint and json from the flags that were given, reading the files that they name.
// INVALID_ARGUMENT, naming the flag, if a file cannot be read or the flags contradict each other.
absl::Status SetConstraintFromFlags(v1::GenerateRequest* request);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_
