#include "model/tokenizer/tokenizer_json.h"

#include <cstddef>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_fields.h"
#include "model/tokenizer/tokenizer_json_pipeline.h"
#include "model/tokenizer/tokenizer_json_tables.h"

namespace tlm {
namespace {

using nlohmann::json;

// Added tokens are searched for at every byte of a text, so their length counts.
constexpr size_t kMaxAddedTokenBytes = 1024;

absl::StatusOr<AddedToken> ReadAddedToken(const json& object, const std::string& name) {
  if (!object.is_object()) return WrongJsonType("", name, object, "an object");
  const std::string where = name + ".";
  const json* const id = FindMember(object, "id");
  if (id == nullptr) return InvalidArgument("{}id is missing", where);
  AddedToken token;
  TLM_ASSIGN_OR_RETURN(token.id, ReadTokenId(*id, where + "id"));
  TLM_ASSIGN_OR_RETURN(token.content, ReadString(object, where, "content"));
  if (token.content.size() > kMaxAddedTokenBytes) {
    return InvalidArgument("{}content has {} bytes, the limit is {}", where, token.content.size(),
                           kMaxAddedTokenBytes);
  }
  TLM_ASSIGN_OR_RETURN(token.special, ReadBool(object, where, "special", false));
  TLM_ASSIGN_OR_RETURN(token.single_word, ReadBool(object, where, "single_word", false));
  TLM_ASSIGN_OR_RETURN(token.lstrip, ReadBool(object, where, "lstrip", false));
  TLM_ASSIGN_OR_RETURN(token.rstrip, ReadBool(object, where, "rstrip", false));
  TLM_ASSIGN_OR_RETURN(token.normalized, ReadBool(object, where, "normalized", !token.special));
  return token;
}

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const json& root) {
  std::vector<AddedToken> result;
  if (FindMember(root, "added_tokens") == nullptr) return result;
  TLM_ASSIGN_OR_RETURN(const json* const tokens, ReadArray(root, "", "added_tokens"));
  for (size_t i = 0; i < tokens->size(); ++i) {
    TLM_ASSIGN_OR_RETURN(AddedToken token,
                         ReadAddedToken((*tokens)[i], fmt::format("added_tokens[{}]", i)));
    if (!token.content.empty()) result.push_back(std::move(token));
  }
  return result;
}

}  // namespace

absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(TokenizerJson parsed, ParseTokenizerTables(text));
  const json& root = parsed.root;
  if (!root.is_object()) return InvalidArgument("is not a JSON object");
  TLM_ASSIGN_OR_RETURN(const std::string version, ReadString(root, "", "version"));
  if (!version.empty() && version != "1.0") {
    return Unimplemented("version {} is not supported, only '1.0' is", Quoted(version));
  }
  TokenizerDescription result;
  TLM_ASSIGN_OR_RETURN(result.model, ReadModel(parsed));
  TLM_ASSIGN_OR_RETURN(result.added_tokens, ReadAddedTokens(root));
  TLM_ASSIGN_OR_RETURN(result.normalizer, ReadNormalizer(root));
  TLM_ASSIGN_OR_RETURN(result.pre_tokenizer, ReadPreTokenizer(root));
  TLM_ASSIGN_OR_RETURN(result.frame, ReadPostProcessor(root));
  TLM_ASSIGN_OR_RETURN(result.decoder, ReadDecoder(root));
  return result;
}

}  // namespace tlm
