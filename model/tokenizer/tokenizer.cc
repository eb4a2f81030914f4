#include "model/tokenizer/tokenizer.h"

#include <cstddef>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/text/utf8.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer_json.h"

namespace tlm {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Converts in place: the merges may be most of a description.
absl::Status ConvertMerges(std::vector<BpeMerge>& merges, bool is_byte_level) {
  for (size_t i = 0; i < merges.size(); ++i) {
    auto& [left, right] = merges[i];
    std::optional<std::string> left_part = ToModelNotation(left, is_byte_level);
    std::optional<std::string> right_part = ToModelNotation(right, is_byte_level);
    if (!left_part.has_value() || !right_part.has_value()) {
      return InvalidArgument(
          "model.merges[{}]: {} and {} are not written in the byte-level alphabet", i, Quoted(left),
          Quoted(right));
    }
    left = *std::move(left_part);
    right = *std::move(right_part);
  }
  return absl::OkStatus();
}

// Returns the first byte that has no token of its own.
std::optional<int> FindMissingByte(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (!vocabulary.Find({&character, 1}).has_value()) return byte;
  }
  return std::nullopt;
}

// A byte-level vocabulary with every byte needs no unknown token, regardless of its options.
absl::StatusOr<Bpe::Options> BpeOptions(const ModelDescription& model, bool is_byte_level,
                                        const Vocabulary& vocabulary) {
  Bpe::Options options;
  options.ignore_merges = model.ignore_merges;
  if (!is_byte_level) options.symbols = Bpe::Symbols::kCharacters;
  const std::optional<int> missing = is_byte_level ? FindMissingByte(vocabulary) : std::nullopt;
  if (is_byte_level && !missing.has_value()) return options;
  if (is_byte_level && model.byte_fallback) {
    return Unimplemented(
        "model.byte_fallback is not supported for a byte-level vocabulary without byte 0x{:02x}",
        *missing);
  }
  options.byte_fallback = model.byte_fallback;
  options.fuse_unknown = model.fuse_unknown;
  if (model.unknown_token.empty()) return options;
  if (const auto name = ToModelNotation(model.unknown_token, is_byte_level); name.has_value()) {
    options.unknown_id = vocabulary.Find(*name);
  }
  if (!options.unknown_id.has_value()) {
    return InvalidArgument("model.unk_token {} is not in model.vocab", Quoted(model.unknown_token));
  }
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& tokenizer_json_path) {
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFile(tokenizer_json_path, kMaxFileBytes));
  absl::StatusOr<std::unique_ptr<Tokenizer>> result = FromJson(json);
  if (!result.ok()) return WithContext(result.status(), tokenizer_json_path);
  return result;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  TLM_ASSIGN_OR_RETURN(TokenizerDescription description, ParseTokenizerJson(json));
  return Create(std::move(description));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerDescription description) {
  TLM_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(description.normalizer));
  TLM_ASSIGN_OR_RETURN(TokenDecoder decoder, TokenDecoder::Create(description.decoder));
  TLM_ASSIGN_OR_RETURN(TokenTables tables, BuildTokenTables(description, normalizer, decoder));
  // Frees megabytes that the tables now hold.
  decltype(description.model.vocab)().swap(description.model.vocab);
  std::unique_ptr<Tokenizer> result(new Tokenizer(std::move(decoder), std::move(tables)));
  result->is_byte_level_ = description.pre_tokenizer.is_byte_level;
  result->normalizer_ = std::move(normalizer);
  result->SetAddedTokens(description.added_tokens);
  TLM_ASSIGN_OR_RETURN(result->pre_tokenizer_,
                       PreTokenizer::Create(description.pre_tokenizer.steps));
  TLM_RETURN_IF_ERROR(result->SetModel(std::move(description.model)));
  TLM_RETURN_IF_ERROR(result->SetFrame(description.frame));
  return result;
}

void Tokenizer::SetAddedTokens(const std::vector<AddedToken>& tokens) {
  is_special_.resize(vocab_size(), false);
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  for (size_t i = 0; i < tokens.size(); ++i) {
    is_special_[tokens[i].id] = tokens[i].special;
    (tokens[i].normalized ? normalized : raw).push_back(tokens[i]);
    (tokens[i].normalized ? normalized_contents : raw_contents)
        .push_back(tables_.added_contents[i]);
  }
  raw_matcher_.emplace(std::move(raw), raw_contents);
  normalized_matcher_.emplace(std::move(normalized), normalized_contents);
}

absl::Status Tokenizer::SetModel(ModelDescription model) {
  const Vocabulary* const vocabulary = &tables_.vocabulary;
  if (model.kind == ModelDescription::kUnigram) {
    if (is_byte_level_) {
      return Unimplemented("model.type 'Unigram' behind a 'ByteLevel' pre_tokenizer");
    }
    TLM_ASSIGN_OR_RETURN(model_, Unigram::Create(vocabulary, model.scores,
                                                 {.unknown_id = model.unknown_id,
                                                  .byte_fallback = model.byte_fallback}));
    return absl::OkStatus();
  }
  TLM_RETURN_IF_ERROR(ConvertMerges(model.merges, is_byte_level_));
  TLM_ASSIGN_OR_RETURN(const Bpe::Options options, BpeOptions(model, is_byte_level_, *vocabulary));
  TLM_ASSIGN_OR_RETURN(model_, Bpe::Create(vocabulary, model.merges, options, model.merge_ranks));
  return absl::OkStatus();
}

absl::Status Tokenizer::SetFrame(const SpecialTokenFrame& frame) {
  for (const std::vector<int32_t>* const ids : {&frame.before, &frame.after}) {
    for (const int32_t id : *ids) {
      if (!HasToken(id)) {
        return InvalidArgument("post_processor adds id {}, which has no token", id);
      }
    }
  }
  frame_ = frame;
  return absl::OkStatus();
}

// Passes ids on to a sink.
class Tokenizer::Output {
 public:
  explicit Output(IdSink take) : take_(take) {}

  // Append the next ids here, then call Pass.
  std::vector<int32_t>* ids() { return &ids_; }
  absl::Status Pass() { return ids_.size() < kAtOnce ? absl::OkStatus() : Flush(); }
  absl::Status Flush() {
    TLM_RETURN_IF_ERROR(take_(ids_));
    ids_.clear();
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kAtOnce = 256;

  const IdSink take_;
  std::vector<int32_t> ids_;
};

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8_text,
                                                       const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  TLM_RETURN_IF_ERROR(EncodeTo(utf8_text, options, [&ids](std::span<const int32_t> some) {
    ids.insert(ids.end(), some.begin(), some.end());
    return absl::OkStatus();
  }));
  return ids;
}

absl::Status Tokenizer::EncodeTo(std::string_view utf8_text, const EncodeOptions& options,
                                 IdSink take) const {
  if (utf8_text.size() >= kMaxTextBytes) {
    return InvalidArgument("text has {} bytes, the limit is {}", utf8_text.size(),
                           kMaxTextBytes - 1);
  }
  if (const size_t invalid = FindInvalidUtf8(utf8_text); invalid != utf8_text.npos) {
    return InvalidArgument("text is not valid UTF-8 at byte offset {} of {}", invalid,
                           utf8_text.size());
  }
  Output output(take);
  if (options.add_special_tokens) *output.ids() = frame_.before;
  const auto encode_piece = [&](const AddedTokenMatcher::Piece& piece) {
    if (!piece.id.has_value()) {
      const bool begins_input = piece.text.data() == utf8_text.data();
      return EncodeText(piece.text, begins_input, options.parse_special, output);
    }
    output.ids()->push_back(*piece.id);
    return output.Pass();
  };
  TLM_RETURN_IF_ERROR(raw_matcher_->Split(utf8_text, encode_piece, options.parse_special));
  if (options.add_special_tokens) {
    output.ids()->insert(output.ids()->end(), frame_.after.begin(), frame_.after.end());
  }
  return output.Flush();
}

absl::Status Tokenizer::EncodeText(std::string_view text, bool begins_input, bool parse_special,
                                   Output& output) const {
  std::string storage;
  TLM_ASSIGN_OR_RETURN(text, normalizer_.Normalize(text, &storage));
  const auto encode_word = [&](std::string_view word) {
    const auto* const bpe = std::get_if<Bpe>(&model_);
    TLM_RETURN_IF_ERROR(bpe != nullptr ? bpe->Encode(word, output.ids())
                                       : std::get<Unigram>(model_).Encode(word, output.ids()));
    return output.Pass();
  };
  const auto encode_piece = [&](const AddedTokenMatcher::Piece& piece) {
    if (!piece.id.has_value()) {
      return pre_tokenizer_->Split(piece.text, begins_input && piece.text.data() == text.data(),
                                   encode_word);
    }
    output.ids()->push_back(*piece.id);
    return output.Pass();
  };
  return normalized_matcher_->Split(text, encode_piece, parse_special);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(this, skip_special_tokens, TextPosition::kBeginsText);
  std::string text = decoder.AppendAll(ids);
  return text += decoder.Flush();
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && is_special_[id];
}

bool Tokenizer::IsByte(int32_t id) const {
  return id >= 0 && id < vocab_size() && tables_.is_byte[id];
}

std::string_view Tokenizer::FirstTokenText(int32_t id) const {
  return tables_.first_texts.has_value() ? tables_.first_texts->Bytes(id) : TokenBytes(id);
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view content) const {
  if (FindInvalidUtf8(content) != content.npos) return std::nullopt;
  if (const auto found = tables_.added_ids.find(std::string(content));
      found != tables_.added_ids.end()) {
    return found->second;
  }
  const std::optional<std::string> name = ToModelNotation(content, is_byte_level_);
  return name.has_value() ? tables_.vocabulary.Find(*name) : std::nullopt;
}

std::string Tokenizer::IdToToken(int32_t id) const {
  for (const auto& [content, added_id] : tables_.added_ids) {
    if (added_id == id) return content;
  }
  const std::string_view name = tables_.vocabulary.Bytes(id);
  return is_byte_level_ ? ByteLevelFromBytes(name) : std::string(name);
}

}  // namespace tlm
