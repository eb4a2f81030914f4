#include "model/tokenizer/token_tables.h"

#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "model/tokenizer/byte_level.h"

namespace tlm {
namespace {

using IdMap = absl::flat_hash_map<std::string, int32_t>;

// Indexes the added tokens by content; none may occur twice.
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

absl::StatusOr<std::vector<std::string>> SearchedContents(const std::vector<AddedToken>& tokens,
                                                          const Normalizer& normalizer) {
  std::vector<std::string> result;
  for (const AddedToken& token : tokens) {
    std::string_view content = token.content;
    std::string storage;
    if (token.normalized) {
      TLM_ASSIGN_OR_RETURN(content, normalizer.Normalize(content, &storage));
    }
    result.emplace_back(content);
  }
  return result;
}

// Returns the model's own tokens. A token that is not written in the byte-level alphabet must also
// be an added token: the merges cannot make it.
absl::StatusOr<std::vector<VocabularyEntry>> ModelEntries(const TokenizerDescription& description,
                                                          const IdMap& added) {
  std::vector<VocabularyEntry> entries;
  entries.reserve(description.model.vocab.size() + description.added_tokens.size());
  for (const auto& [content, id] : description.model.vocab) {
    const auto same = added.find(content);
    if (same != added.end() && same->second != id) {
      return InvalidArgument("added token {} has id {}, but id {} in model.vocab", Quoted(content),
                             same->second, id);
    }
    std::optional<std::string> notation =
        ToModelNotation(content, description.pre_tokenizer.is_byte_level);
    if (!notation.has_value() && same == added.end()) {
      return InvalidArgument(
          "model.vocab: token {} with id {} is not written in the byte-level "
          "alphabet",
          Quoted(content), id);
    }
    const bool is_searchable = notation.has_value();
    entries.push_back({id, is_searchable ? *std::move(notation) : content, is_searchable});
  }
  return entries;
}

// Returns the text of a token. Many added tokens were written in the byte-level alphabet ("Ġword"),
// but a token that would not be UTF-8 in it ("café") is its own text.
absl::StatusOr<TokenDecoder::TokenText> Decode(const TokenDecoder& decoder,
                                               const std::string& token, bool is_added,
                                               bool is_first) {
  TLM_ASSIGN_OR_RETURN(TokenDecoder::TokenText result, decoder.Decode(token, is_first));
  if (is_added && !result.is_byte && FindInvalidUtf8(result.text) != std::string::npos) {
    result.text = token;
  }
  return result;
}

struct NamedToken {
  int32_t id;
  const std::string* name;
  bool is_added;
};

absl::Status FillTexts(const std::vector<NamedToken>& tokens, const TokenDecoder& decoder,
                       TokenTables* tables) {
  std::vector<VocabularyEntry> texts, first_texts;
  tables->is_byte.assign(tables->vocabulary.size(), false);
  texts.reserve(tokens.size());
  if (decoder.first_token_is_special()) first_texts.reserve(tokens.size());
  for (const auto& [id, name, is_added] : tokens) {
    TLM_ASSIGN_OR_RETURN(auto text, Decode(decoder, *name, is_added, false));
    tables->is_byte[id] = text.is_byte;
    texts.push_back({id, std::move(text.text), false});
    if (!decoder.first_token_is_special()) continue;
    TLM_ASSIGN_OR_RETURN(auto first_text, Decode(decoder, *name, is_added, true));
    first_texts.push_back({id, std::move(first_text.text), false});
  }
  TLM_ASSIGN_OR_RETURN(Vocabulary all, Vocabulary::Create(std::move(texts)));
  if (!all.HasBytesOf(tables->vocabulary)) tables->texts = std::move(all);
  if (!decoder.first_token_is_special()) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(tables->first_texts, Vocabulary::Create(std::move(first_texts)));
  return absl::OkStatus();
}

}  // namespace

std::optional<std::string> ToModelNotation(std::string_view token, bool is_byte_level) {
  if (is_byte_level) return BytesFromByteLevel(token);
  return std::string(token);
}

absl::StatusOr<TokenTables> BuildTokenTables(const TokenizerDescription& description,
                                             const Normalizer& normalizer,
                                             const TokenDecoder& decoder) {
  TokenTables tables;
  const std::vector<AddedToken>& added = description.added_tokens;
  TLM_ASSIGN_OR_RETURN(tables.added_ids, IndexAddedTokens(added));
  TLM_ASSIGN_OR_RETURN(tables.added_contents, SearchedContents(added, normalizer));
  TLM_ASSIGN_OR_RETURN(std::vector<VocabularyEntry> entries,
                       ModelEntries(description, tables.added_ids));
  std::vector<NamedToken> tokens;
  tokens.reserve(description.model.vocab.size() + added.size());
  for (const auto& [content, id] : description.model.vocab) {
    if (!tables.added_ids.contains(content)) tokens.push_back({id, &content, false});
  }
  absl::flat_hash_map<int32_t, std::string_view> content_of;  // the model's content for ids of
                                                              // added tokens
  for (const AddedToken& token : added) content_of.emplace(token.id, std::string_view());
  for (const auto& [content, id] : description.model.vocab) {
    if (const auto same = content_of.find(id); same != content_of.end()) same->second = content;
  }
  for (size_t i = 0; i < added.size(); ++i) {
    const auto same_id = content_of.find(added[i].id);
    const bool is_models = same_id->second == added[i].content;
    if (!is_models) entries.push_back({added[i].id, added[i].content, false});
    tokens.push_back({added[i].id, &tables.added_contents[i], !is_models});
  }
  TLM_ASSIGN_OR_RETURN(tables.vocabulary, Vocabulary::Create(std::move(entries)));
  TLM_RETURN_IF_ERROR(FillTexts(tokens, decoder, &tables));
  return tables;
}

}  // namespace tlm
