#include "model/tokenizer/tokenizer.h"

#include <cstddef>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/mapped_file.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxTextBytes = size_t{1} << 30;

using IdMap = absl::flat_hash_map<std::string, int32_t>;

// Which added tokens there are, none of them twice.
absl::StatusOr<IdMap> IndexAddedTokens(const std::vector<AddedToken>& tokens) {
  IdMap result;
  for (const AddedToken& token : tokens) {
    const auto [other, added] = result.try_emplace(token.content, token.id);
    if (!added) {
      return InvalidArgument("added token {} occurs twice, with ids {} and {}",
                             Quoted(token.content), other->second, token.id);
    }
  }
  return result;
}

// The model's own tokens. One that is not written in the byte-level alphabet must also be an added
// token: the merges cannot make it.
absl::StatusOr<std::vector<VocabularyEntry>> ModelEntries(const BpeDescription& model,
                                                          const IdMap& added) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(model.vocab.size());
  for (const auto& [content, id] : model.vocab) {
    const auto same = added.find(content);
    if (same != added.end() && same->second != id) {
      return InvalidArgument("added token {} has id {}, but id {} in model.vocab", Quoted(content),
                             same->second, id);
    }
    std::optional<std::string> bytes = BytesFromByteLevel(content);
    if (!bytes.has_value() && same == added.end()) {
      return InvalidArgument(
          "model.vocab: token {} with id {} is not written in the byte-level "
          "alphabet",
          Quoted(content), id);
    }
    const bool is_searchable = bytes.has_value();
    entries.push_back({id, is_searchable ? *std::move(bytes) : content, is_searchable});
  }
  return entries;
}

// Added tokens mean their content, but many were written in the byte-level alphabet ("Ġword"), and
// the ByteLevel decoder reads them so.
std::string AddedTokenBytes(const std::string& content) {
  const std::optional<std::string> bytes = BytesFromByteLevel(content);
  const bool is_text = bytes.has_value() && FindInvalidUtf8(*bytes) == std::string::npos;
  return is_text ? *bytes : content;
}

absl::StatusOr<Vocabulary> BuildVocabulary(const TokenizerDescription& description) {
  TLM_ASSIGN_OR_RETURN(const IdMap added, IndexAddedTokens(description.added_tokens));
  TLM_ASSIGN_OR_RETURN(std::vector<VocabularyEntry> entries,
                       ModelEntries(description.model, added));
  absl::flat_hash_map<int32_t, std::string_view> content_of;
  for (const auto& [content, id] : description.model.vocab) content_of.emplace(id, content);
  for (const AddedToken& token : description.added_tokens) {
    const auto same_id = content_of.find(token.id);
    // In the model's vocabulary too: ModelEntries has it.
    if (same_id != content_of.end() && same_id->second == token.content) continue;
    entries.push_back({token.id, AddedTokenBytes(token.content), false});
  }
  return Vocabulary::Create(std::move(entries));
}

absl::StatusOr<std::vector<BpeMerge>> MergesInBytes(const BpeDescription& model) {
  std::vector<BpeMerge> merges;
  merges.reserve(model.merges.size());
  for (const auto& [left, right] : model.merges) {
    std::optional<std::string> left_bytes = BytesFromByteLevel(left);
    std::optional<std::string> right_bytes = BytesFromByteLevel(right);
    if (!left_bytes.has_value() || !right_bytes.has_value()) {
      return InvalidArgument(
          "model.merges[{}]: {} and {} are not written in the byte-level alphabet", merges.size(),
          Quoted(left), Quoted(right));
    }
    merges.emplace_back(*std::move(left_bytes), *std::move(right_bytes));
  }
  return merges;
}

// With every byte in the vocabulary nothing is unknown; without, the unknown token would be needed.
absl::Status CheckUnknownToken(const BpeDescription& model, const Vocabulary& vocabulary) {
  if (!model.has_unknown_token) return absl::OkStatus();
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (!vocabulary.Find({&character, 1}).has_value()) {
      return Unimplemented(
          "model.unk_token is not supported for a vocabulary without byte 0x{:02x}", byte);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& tokenizer_json_path) {
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFile(tokenizer_json_path, kMaxFileBytes));
  absl::StatusOr<std::unique_ptr<Tokenizer>> result = FromJson(json);
  if (!result.ok()) return WithContext(result.status(), tokenizer_json_path);
  return result;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  TLM_ASSIGN_OR_RETURN(const TokenizerDescription description, ParseTokenizerJson(json));
  return Create(description);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(
    const TokenizerDescription& description) {
  TLM_ASSIGN_OR_RETURN(Vocabulary vocabulary, BuildVocabulary(description));
  TLM_RETURN_IF_ERROR(CheckUnknownToken(description.model, vocabulary));
  std::unique_ptr<Tokenizer> result(new Tokenizer(std::move(vocabulary)));
  result->normalizer_ = Normalizer(description.normalizer);
  result->SetAddedTokens(description.added_tokens);
  TLM_ASSIGN_OR_RETURN(result->pre_tokenizer_, PreTokenizer::Create(description.pre_tokenizer));
  TLM_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, MergesInBytes(description.model));
  TLM_ASSIGN_OR_RETURN(result->bpe_,
                       Bpe::Create(&result->vocabulary_, merges,
                                   {.ignore_merges = description.model.ignore_merges}));
  TLM_RETURN_IF_ERROR(result->SetFrame(description.frame));
  return result;
}

void Tokenizer::SetAddedTokens(const std::vector<AddedToken>& tokens) {
  is_special_.resize(vocab_size(), false);
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  for (const AddedToken& token : tokens) {
    added_ids_.emplace(token.content, token.id);
    is_special_[token.id] = token.special;
    std::string storage;
    if (token.normalized) {
      normalized.push_back(token);
      normalized_contents.emplace_back(normalizer_.Normalize(token.content, &storage));
    } else {
      raw.push_back(token);
      raw_contents.push_back(token.content);
    }
  }
  raw_matcher_.emplace(std::move(raw), raw_contents);
  normalized_matcher_.emplace(std::move(normalized), normalized_contents);
}

absl::Status Tokenizer::SetFrame(const SpecialTokenFrame& frame) {
  for (const std::vector<int32_t>* const ids : {&frame.before, &frame.after}) {
    for (const int32_t id : *ids) {
      if (TokenBytes(id).empty()) {
        return InvalidArgument("post_processor adds id {}, which has no token", id);
      }
    }
  }
  frame_ = frame;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view utf8_text,
                                                       bool add_special_tokens) const {
  if (utf8_text.size() >= kMaxTextBytes) {
    return InvalidArgument("text has {} bytes, the limit is {}", utf8_text.size(),
                           kMaxTextBytes - 1);
  }
  if (const size_t invalid = FindInvalidUtf8(utf8_text); invalid != utf8_text.npos) {
    return InvalidArgument("text is not valid UTF-8 at byte offset {} of {}", invalid,
                           utf8_text.size());
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = frame_.before;
  TLM_RETURN_IF_ERROR(raw_matcher_->Split(utf8_text, [&](const AddedTokenMatcher::Piece& piece) {
    if (!piece.id.has_value()) return EncodeText(piece.text, &ids);
    ids.push_back(*piece.id);
    return absl::OkStatus();
  }));
  if (add_special_tokens) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
  return ids;
}

absl::Status Tokenizer::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  std::string storage;
  text = normalizer_.Normalize(text, &storage);
  return normalized_matcher_->Split(text, [&](const AddedTokenMatcher::Piece& piece) {
    if (piece.id.has_value()) {
      ids->push_back(*piece.id);
      return absl::OkStatus();
    }
    return pre_tokenizer_->Split(piece.text,
                                 [&](std::string_view word) { return bpe_->Encode(word, ids); });
  });
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(this, skip_special_tokens);
  std::string text = decoder.AppendAll(ids);
  return text += decoder.Flush();
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && is_special_[id];
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view content) const {
  if (FindInvalidUtf8(content) != content.npos) return std::nullopt;
  if (const auto found = added_ids_.find(std::string(content)); found != added_ids_.end())
    return found->second;
  const std::optional<std::string> bytes = BytesFromByteLevel(content);
  return bytes.has_value() ? vocabulary_.Find(*bytes) : std::nullopt;
}

}  // namespace tlm
