#include "client/cli/base/request_flags.h"

#include "absl/flags/flag.h"

using tlm::cli::IdList;
using tlm::cli::IdLists;

ABSL_FLAG(std::string, model, "", "which model; empty is the served one");
ABSL_FLAG(std::string, request_id, "", "name of the request in the server's log");
ABSL_FLAG(std::optional<bool>, add_special_tokens, std::nullopt,
          "whether the tokenizer adds its special tokens to a text");
ABSL_FLAG(IdList, prompt_ids, {}, "token ids as the prompt, instead of PROMPT: 15496,11,995");
ABSL_FLAG(IdLists, ids, {}, "token ids instead of texts; several sequences: 1,2,3;4,5");
ABSL_FLAG(std::optional<bool>, logprobs, std::nullopt,
          "print a table of tokens with log-probabilities");
ABSL_FLAG(uint32_t, top_logprobs, 0, "this many alternatives for each token of the table");
ABSL_FLAG(
    bool, json, false,
    "print the server's messages as JSON, one a line; 64-bit numbers are strings, as protobuf's "
    "JSON has them");
