// What a Hugging Face tokenizer.json says, as plain structs. Nothing here looks at the text to be
// tokenized: the parts are built from these descriptions.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace tlm {

// "model" of type BPE, its strings as they stand there: in the byte-level alphabet.
struct BpeDescription {
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // in the order of their rank
  bool ignore_merges = false;
  bool has_unknown_token = false;
};

// What "post_processor" puts around the tokens of a text.
struct SpecialTokenFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

struct TokenizerDescription {
  BpeDescription model;
  std::vector<AddedToken> added_tokens;  // those without content are left out
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  SpecialTokenFrame frame;
};

// INVALID_ARGUMENT for text that is not JSON, members of the wrong type, missing ones, an empty
// vocabulary, and ids outside [0, kMaxTokenIds); UNIMPLEMENTED for components that are not those of
// byte-level BPE. Every message names the member and its value. Whether vocabulary, merges and
// added tokens fit together is not checked here. "truncation" and "padding" are ignored: they
// describe how batches are made for training.
absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view json);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_
