// Reads a Hugging Face tokenizer.json.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer_description.h"

namespace tlm {

// INVALID_ARGUMENT for text that is not JSON, members that are missing or of the wrong type, an
// empty vocabulary, and ids outside [0, kMaxTokenIds); UNIMPLEMENTED for components that are not
// supported. Every message names the member and its value. Does not check that vocabulary, merges
// and added tokens are consistent. Ignores "truncation" and "padding": they describe how batches
// are made for training.
absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view json);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_H_
