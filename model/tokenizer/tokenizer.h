// Text to token ids and back: byte-level BPE as a Hugging Face tokenizer.json describes it.
//
//   text -> added tokens -> normalizer -> pre-tokenizer -> BPE -> special tokens around it
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {

// Immutable, so any thread may use it.
class Tokenizer {
 public:
  // NOT_FOUND and FAILED_PRECONDITION when the file cannot be read; INVALID_ARGUMENT when it is
  // larger than 256 MiB, malformed or inconsistent; UNIMPLEMENTED when it describes anything but
  // byte-level BPE, the message naming the component.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& tokenizer_json_path);
  // The same from the text of such a file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Added tokens, special ones too, are recognised wherever their content stands in the text.
  // `add_special_tokens` puts the tokens of a TemplateProcessing post-processor around it. Takes
  // n log n steps. INVALID_ARGUMENT for text that is not UTF-8 (naming the offset), for 2^30 bytes
  // or more, and for bytes without a token in an incomplete vocabulary; RESOURCE_EXHAUSTED when the
  // pre-tokenizer's pattern backtracks beyond its limits.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8_text,
                                              bool add_special_tokens) const;

  // The bytes of all tokens in a row as UTF-8, where U+FFFD replaces what is not (one for each
  // maximal subpart). Ids without a token are nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // The bytes of a token, which need not be UTF-8; empty for ids that have none (any number will
  // do: models pad their vocabulary). Valid as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const { return vocabulary_.Bytes(id); }

  // One past the largest id that has a token.
  int32_t vocab_size() const { return vocabulary_.size(); }

  // Whether it is an added token marked as special. False for ids without a token.
  bool IsSpecial(int32_t id) const;

  // The id of a token named as tokenizer.json names it: "<|endoftext|>", "Ġthe".
  std::optional<int32_t> TokenToId(std::string_view content) const;

 private:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const TokenizerDescription& description);
  void SetAddedTokens(const std::vector<AddedToken>& tokens);
  absl::Status SetFrame(const SpecialTokenFrame& frame);
  absl::Status EncodeText(std::string_view text, std::vector<int32_t>* ids) const;

  Vocabulary vocabulary_;
  absl::flat_hash_map<std::string, int32_t> added_ids_;  // by content
  std::vector<bool> is_special_;                         // by id
  Normalizer normalizer_;
  std::optional<AddedTokenMatcher> raw_matcher_;         // of tokens found in the text as it is
  std::optional<AddedTokenMatcher> normalized_matcher_;  // and of those found after normalisation
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<Bpe> bpe_;
  SpecialTokenFrame frame_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_H_
