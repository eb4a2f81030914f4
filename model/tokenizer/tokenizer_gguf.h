// Reads the tokenizer in the metadata of a GGUF file into the structs that a tokenizer is built
// from.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/tokenizer/tokenizer_description.h"

namespace tlm {

// Reads the keys "tokenizer.ggml.*". There are two models:
//
//   gpt2    byte-level BPE by `merges`; `pre` names how text is divided before
//   llama   SentencePiece's BPE: of all neighbours that are a token together, the pair of the
//           highest of `scores` is joined first; characters without a token become byte tokens
//
// Control and unknown tokens are special added tokens, user-defined ones are added tokens, and
// unused ones are no added tokens. Texts are encoded as by the original tokenizer of the model:
// texts for qwen2 in normal form C.
//
// INVALID_ARGUMENT names a key that is missing or of a wrong type or length, and tokens that are
// too long or not UTF-8; other models and names of `pre` are UNIMPLEMENTED, with the supported
// ones.
absl::StatusOr<TokenizerDescription> ReadGgufTokenizer(const GgufMetadata& metadata);

// Writes the same tokenizer as the text of a tokenizer.json, for programs that read no GGUF files.
// Returns the errors of ReadGgufTokenizer. The model "llama" is UNIMPLEMENTED: several of its
// merges have the same rank and the leftmost is made first, which such a file cannot express.
absl::StatusOr<std::string> GgufTokenizerJson(const GgufMetadata& metadata);

// True if there is a tokenizer: files of models for token ids alone have none.
bool HasGgufTokenizer(const GgufMetadata& metadata);

// Returns the text of the token that "tokenizer.ggml.NAME_token_id" names; nullopt when there is no
// such key or token.
std::optional<std::string_view> GgufSpecialToken(const GgufMetadata& metadata,
                                                 std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_
