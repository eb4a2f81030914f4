// Flags that several commands share.
#ifndef TLM_CLIENT_CLI_REQUEST_FLAGS_H_
#define TLM_CLIENT_CLI_REQUEST_FLAGS_H_

#include <optional>
#include <string>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(std::string, request_id);
ABSL_DECLARE_FLAG(std::optional<bool>, add_special_tokens);
ABSL_DECLARE_FLAG(bool, json);

#endif  // TLM_CLIENT_CLI_REQUEST_FLAGS_H_
