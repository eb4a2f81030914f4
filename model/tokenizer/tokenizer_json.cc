#include "model/tokenizer/tokenizer_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_component.h"

namespace tlm {
namespace {

using nlohmann::json;

// Added tokens are searched for at every byte of a text, so their length counts.
constexpr size_t kMaxAddedTokenBytes = 1024;

absl::StatusOr<AddedToken> ReadAddedToken(const JsonFields& fields) {
  const json* const id = fields.Find("id");
  if (id == nullptr) return fields.Missing("id");
  AddedToken token;
  TLM_ASSIGN_OR_RETURN(token.id, ReadTokenId(*id, fields.Name("id")));
  TLM_ASSIGN_OR_RETURN(token.content, fields.String("content", ""));
  if (token.content.size() > kMaxAddedTokenBytes) {
    return InvalidArgument("{} has {} bytes, the limit is {}", fields.Name("content"),
                           token.content.size(), kMaxAddedTokenBytes);
  }
  TLM_ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  TLM_ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  TLM_ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  TLM_ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  TLM_ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  return token;
}

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonFields& root) {
  std::vector<AddedToken> result;
  if (!root.Has("added_tokens")) return result;
  TLM_ASSIGN_OR_RETURN(const json* const tokens, root.RequiredArray("added_tokens"));
  for (size_t i = 0; i < tokens->size(); ++i) {
    TLM_ASSIGN_OR_RETURN(const JsonFields fields,
                         JsonFields::Open((*tokens)[i], fmt::format("added_tokens[{}]", i)));
    TLM_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(fields));
    if (!token.content.empty()) result.push_back(std::move(token));
  }
  return result;
}

}  // namespace

absl::StatusOr<TokenizerDescription> ParseTokenizerJson(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(TokenizerJson parsed, ParseTokenizerTables(text));
  if (!parsed.root.is_object()) return InvalidArgument("is not a JSON object");
  const JsonFields root(parsed.root);
  TLM_ASSIGN_OR_RETURN(const std::string version, root.String("version", ""));
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
