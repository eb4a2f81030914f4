#include "client/cli/request_flags.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, model, "", "which model; empty is the served one");
ABSL_FLAG(std::string, request_id, "", "name of the request in the server's log");
ABSL_FLAG(std::optional<bool>, add_special_tokens, std::nullopt,
          "whether the tokenizer adds its special tokens to a text");
ABSL_FLAG(bool, json, false, "print the server's messages as JSON, one a line");
