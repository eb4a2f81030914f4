// Flags that several commands share.
#ifndef TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_
#define TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "client/cli/base/flag_types.h"

ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(std::string, request_id);
ABSL_DECLARE_FLAG(std::optional<bool>, add_special_tokens);
ABSL_DECLARE_FLAG(tlm::cli::IdList, prompt_ids);
ABSL_DECLARE_FLAG(tlm::cli::IdLists, ids);
ABSL_DECLARE_FLAG(std::optional<bool>, logprobs);
ABSL_DECLARE_FLAG(uint32_t, top_logprobs);
ABSL_DECLARE_FLAG(bool, json);

#endif  // TLM_CLIENT_CLI_BASE_REQUEST_FLAGS_H_
