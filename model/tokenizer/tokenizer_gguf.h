// The tokenizer in the metadata of a GGUF file, as the structs that a tokenizer is built from.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/tokenizer/tokenizer_json.h"

namespace tlm {

// The keys "tokenizer.ggml.*". Of the models there are
//
//   gpt2    byte-level BPE by `merges`; `pre` names how text is divided before
//   llama   SentencePiece's BPE: of all neighbours that are a token together, those of the highest
//           of `scores` are joined first; characters without a token become byte tokens
//
// Control and unknown tokens are special added tokens, user-defined ones added tokens; unused ones
// are none. Texts are encoded as the original tokenizers of the model encode them: those of qwen2
// in normal form C.
//
// INVALID_ARGUMENT, naming the key, for one that is missing or of a wrong type or length, and for
// tokens that are too long or not UTF-8; UNIMPLEMENTED, with the supported ones, for other models
// and names of `pre`.
absl::StatusOr<TokenizerDescription> ReadGgufTokenizer(const GgufMetadata& metadata);

// The same tokenizer as the text of a tokenizer.json, for programs that read no GGUF files. Errors
// as of ReadGgufTokenizer; UNIMPLEMENTED for the model "llama": of its merges several have the same
// rank and the leftmost is made first, which such a file cannot say.
absl::StatusOr<std::string> GgufTokenizerJson(const GgufMetadata& metadata);

// Whether there is a tokenizer: files of models for token ids alone have none.
bool HasGgufTokenizer(const GgufMetadata& metadata);

// The text of the token that "tokenizer.ggml.NAME_token_id" names; none when there is no such key
// or token.
std::optional<std::string_view> GgufSpecialToken(const GgufMetadata& metadata,
                                                 std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_GGUF_H_
