// Converts text to token ids and back, as a Hugging Face tokenizer.json describes it: byte-level
// BPE (GPT-2, Qwen, Llama 3), SentencePiece's BPE (Llama 2, Mistral) and Unigram.
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
#include "model/tokenizer/tokenizer_description.h"
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
  // larger than 256 MiB, malformed or inconsistent; UNIMPLEMENTED, naming the component, when a
  // component is not supported.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& tokenizer_json_path);
  // Reads the text of such a file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  // Builds a tokenizer from the parsed content of a file; see also tokenizer_gguf.h.
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
  // Passes the same ids to `take` in order, a few hundred at a time, for callers that do not keep
  // them or may stop. Ends at the first error of `take` and returns it.
  using IdSink = absl::FunctionRef<absl::Status(std::span<const int32_t>)>;
  absl::Status EncodeTo(std::string_view utf8_text, const EncodeOptions& options,
                        IdSink take) const;

  // Returns the text of tokens that begin a text. U+FFFD replaces bytes that are not UTF-8: one for
  // each maximal subpart, but one for each byte of SentencePiece's byte tokens. Ids without a token
  // are skipped. (Hugging Face's tokenizers replace a whole run of byte tokens, valid characters
  // included, when some of its bytes are not UTF-8; a stream cannot do this.)
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Returns the text of a token inside a text: " the", "\n". It need not be UTF-8, and is empty for
  // ids without a token (any number is allowed: models pad their vocabulary). Valid as long as the
  // tokenizer.
  std::string_view TokenBytes(int32_t id) const { return tables_.Text(id); }

  // One past the largest id that has a token.
  int32_t vocab_size() const { return tables_.vocabulary.size(); }

  bool HasToken(int32_t id) const { return !tables_.vocabulary.Bytes(id).empty(); }

  // True for an added token that is marked as special; false for ids without a token.
  bool IsSpecial(int32_t id) const;

  // Returns the id of a token by its name in tokenizer.json: "<|endoftext|>", "Ġthe", "▁the".
  std::optional<int32_t> TokenToId(std::string_view content) const;
  // Returns the name of a token in tokenizer.json; empty for ids without a token.
  std::string IdToToken(int32_t id) const;

  // StreamDecoder joins tokens with it.
  const TokenDecoder& decoder() const { return decoder_; }
  // Returns the text of a token at the beginning of a text: TokenBytes unless the decoder says
  // otherwise.
  std::string_view FirstTokenText(int32_t id) const;
  // True for a token that is one byte of a character, such as "<0xE4>"; false for ids without a
  // token.
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
  std::optional<AddedTokenMatcher> raw_matcher_;         // finds tokens in the text as it is
  std::optional<AddedTokenMatcher> normalized_matcher_;  // finds tokens in normalised text
  std::optional<PreTokenizer> pre_tokenizer_;
  std::variant<std::monostate, Bpe, Unigram> model_;  // set by Create
  SpecialTokenFrame frame_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_H_
