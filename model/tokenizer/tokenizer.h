// Text to token ids and back, as a Hugging Face tokenizer.json describes it: byte-level BPE (GPT-2,
// Qwen, Llama 3), SentencePiece's BPE (Llama 2, Mistral) and Unigram.
//
//   text -> added tokens -> normalizer -> pre-tokenizer -> model -> special tokens around it
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/token_tables.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/unigram.h"

namespace tlm {

struct EncodeOptions {
  // Adds the tokens of a TemplateProcessing post-processor around the text.
  bool add_special_tokens = false;
  // Recognises special tokens that occur in the text; otherwise they are ordinary text.
  // Added tokens that are not special are recognised in any case.
  bool parse_special = true;
};

// Immutable, so any thread may use it.
class Tokenizer {
 public:
  // NOT_FOUND and FAILED_PRECONDITION when the file cannot be read; INVALID_ARGUMENT when it is
  // larger than 256 MiB, malformed or inconsistent; UNIMPLEMENTED when it has a component that is
  // not supported, the message naming it.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& tokenizer_json_path);
  // The same from the text of such a file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  // The same from what was read of a file: see tokenizer_gguf.h, too.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerDescription description);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Takes n log n steps. INVALID_ARGUMENT for text that is not UTF-8 (naming the offset), for 2^30
  // bytes or more, and for characters without a token in a vocabulary without an unknown token;
  // RESOURCE_EXHAUSTED when a pattern backtracks beyond its limits or normalisation makes the text
  // too long.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8_text,
                                              const EncodeOptions& options) const;
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8_text,
                                              bool add_special_tokens) const {
    return Encode(utf8_text, EncodeOptions{add_special_tokens, true});
  }
  // The same ids, handed to `take` in order, a few hundred at a time: for callers that need not
  // keep them, or may stop. Ends at the first error of `take` and returns it.
  using IdSink = absl::FunctionRef<absl::Status(std::span<const int32_t>)>;
  absl::Status EncodeTo(std::string_view utf8_text, const EncodeOptions& options,
                        IdSink take) const;

  // The text of the tokens from the beginning of a text on; U+FFFD replaces what is not UTF-8:
  // one for each maximal subpart, of SentencePiece's byte tokens one for each byte. Ids without a
  // token are skipped. (Hugging Face's tokenizers replace a whole run of byte tokens, valid
  // characters included, when some of its bytes are not UTF-8; a stream cannot do that.)
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // The text of a token in the middle of a text: " the", "\n". It need not be UTF-8, and is empty
  // for ids that have no token (any number will do: models pad their vocabulary). Valid as long as
  // the tokenizer.
  std::string_view TokenBytes(int32_t id) const { return tables_.Text(id); }

  // One past the largest id that has a token.
  int32_t vocab_size() const { return tables_.vocabulary.size(); }

  bool HasToken(int32_t id) const { return !tables_.vocabulary.Bytes(id).empty(); }

  // Whether it is an added token marked as special. False for ids without a token.
  bool IsSpecial(int32_t id) const;

  // The id of a token named as tokenizer.json names it: "<|endoftext|>", "Ġthe", "▁the".
  std::optional<int32_t> TokenToId(std::string_view content) const;
  // And back; empty for ids without a token.
  std::string IdToToken(int32_t id) const;

  // For joining tokens; StreamDecoder does it.
  const TokenDecoder& decoder() const { return decoder_; }
  // The text of a token at the beginning of a text: TokenBytes unless the decoder says otherwise.
  std::string_view FirstTokenText(int32_t id) const;
  // Whether it is one byte of a character, as "<0xE4>" is. False for ids without a token.
  bool IsByte(int32_t id) const;

 private:
  Tokenizer(TokenDecoder decoder, TokenTables tables)
      : decoder_(std::move(decoder)), tables_(std::move(tables)) {}
  void SetAddedTokens(const std::vector<AddedToken>& tokens);
  absl::Status SetModel(ModelDescription model);
  absl::Status SetFrame(const SpecialTokenFrame& frame);
  class Output;
  absl::Status EncodeText(std::string_view text, bool begins_input, bool parse_special,
                          Output& output) const;

  TokenDecoder decoder_;
  TokenTables tables_;
  bool is_byte_level_ = false;
  std::vector<bool> is_special_;  // by id
  Normalizer normalizer_;
  std::optional<AddedTokenMatcher> raw_matcher_;         // of tokens found in the text as it is
  std::optional<AddedTokenMatcher> normalized_matcher_;  // and of those found after normalisation
  std::optional<PreTokenizer> pre_tokenizer_;
  std::variant<std::monostate, Bpe, Unigram> model_;  // set by Create
  SpecialTokenFrame frame_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_H_
