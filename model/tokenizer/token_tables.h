// The strings of all tokens of a tokenizer.json, in the forms that the parts of a tokenizer need.
#ifndef TLM_MODEL_TOKENIZER_TOKEN_TABLES_H_
#define TLM_MODEL_TOKENIZER_TOKEN_TABLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer_description.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {

struct TokenTables {
  // The strings in the model's notation: bytes for a byte-level model, otherwise the strings of the
  // file.
  Vocabulary vocabulary;
  // Decoded texts inside a sequence, unset if equal to `vocabulary`; and at its beginning, unset if
  // the decoder makes no difference there.
  std::optional<Vocabulary> texts;
  std::optional<Vocabulary> first_texts;
  std::vector<bool> is_byte;                            // by id: TokenDecoder::TokenText::is_byte
  absl::flat_hash_map<std::string, int32_t> added_ids;  // by content
  std::vector<std::string> added_contents;  // the strings to search for, in the order of the file

  std::string_view Text(int32_t id) const {
    return texts.has_value() ? texts->Bytes(id) : vocabulary.Bytes(id);
  }
};

// INVALID_ARGUMENT when tokens contradict each other or are not written in the required alphabet;
// also the errors of Normalizer::Normalize and TokenDecoder::Decode.
absl::StatusOr<TokenTables> BuildTokenTables(const TokenizerDescription& description,
                                             const Normalizer& normalizer,
                                             const TokenDecoder& decoder);

// Converts a string of the file to the model's notation; nullopt when it is not written in the
// alphabet.
std::optional<std::string> ToModelNotation(std::string_view token, bool is_byte_level);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKEN_TABLES_H_
