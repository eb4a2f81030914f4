#include "model/tokenizer/tokenizer_json.h"

#include <cstddef>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_fields.h"
#include "model/tokenizer/tokenizer_json_pipeline.h"

namespace tlm {
namespace {

using nlohmann::json;

// Added tokens are searched for at every byte of a text, so their length counts.
constexpr size_t kMaxAddedTokenBytes = 1024;

// Options of BPE that only other kinds of vocabularies set.
absl::Status CheckModelOptions(const json& model) {
  TLM_ASSIGN_OR_RETURN(const bool byte_fallback, ReadBool(model, "model.", "byte_fallback", false));
  if (byte_fallback) {
    return Unimplemented("model.byte_fallback true (SentencePiece) is not supported");
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TLM_ASSIGN_OR_RETURN(const std::string value, ReadString(model, "model.", key));
    if (!value.empty()) return Unimplemented("model.{} {} is not supported", key, Quoted(value));
  }
  const json* const dropout = FindMember(model, "dropout");
  if (dropout == nullptr) return absl::OkStatus();
  if (!dropout->is_number()) return WrongJsonType("model.", "dropout", *dropout, "a number");
  if (dropout->get<double>() != 0) {
    return Unimplemented("model.dropout {} is not supported: it makes tokens a matter of chance",
                         dropout->dump());
  }
  return absl::OkStatus();
}

absl::Status ReadVocab(const json& model, BpeDescription* result) {
  TLM_ASSIGN_OR_RETURN(const json* const vocab, ReadObject(model, "model.", "vocab"));
  if (vocab->empty()) return InvalidArgument("model.vocab is empty");
  result->vocab.reserve(vocab->size());
  for (const auto& [token, value] : vocab->items()) {
    const absl::StatusOr<int32_t> id = ReadTokenId(value, "its id");
    if (!id.ok()) return WithContext(id.status(), "model.vocab: token " + Quoted(token));
    result->vocab.emplace_back(token, *id);
  }
  return absl::OkStatus();
}

// "a b" or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const json& merge, size_t rank) {
  constexpr std::string_view kWanted = "a string \"a b\" or an array [\"a\", \"b\"]";
  const auto wrong = [&] {
    return WrongJsonType("model.", fmt::format("merges[{}]", rank), merge, kWanted);
  };
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return wrong();
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    return wrong();
  }
  return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
}

absl::Status ReadMerges(const json& model, BpeDescription* result) {
  TLM_ASSIGN_OR_RETURN(const json* const merges, ReadArray(model, "model.", "merges"));
  result->merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const json& merge = (*merges)[i];
    // The first line of a merges.txt, which some converters copied.
    if (merge.is_string() && merge.get_ref<const std::string&>().rfind("#version", 0) == 0) {
      continue;
    }
    TLM_ASSIGN_OR_RETURN(result->merges.emplace_back(), ReadMerge(merge, i));
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeDescription> ReadModel(const json& root) {
  TLM_ASSIGN_OR_RETURN(const json* const model, ReadObject(root, "", "model"));
  TLM_ASSIGN_OR_RETURN(const std::string type, ReadString(*model, "model.", "type"));
  if (!type.empty() && type != "BPE") {
    return Unimplemented("model.type {} is not supported, only 'BPE' is", Quoted(type));
  }
  TLM_RETURN_IF_ERROR(CheckModelOptions(*model));
  BpeDescription result;
  TLM_RETURN_IF_ERROR(ReadVocab(*model, &result));
  TLM_RETURN_IF_ERROR(ReadMerges(*model, &result));
  TLM_ASSIGN_OR_RETURN(result.ignore_merges, ReadBool(*model, "model.", "ignore_merges", false));
  TLM_ASSIGN_OR_RETURN(const std::string unknown, ReadString(*model, "model.", "unk_token"));
  result.has_unknown_token = !unknown.empty();
  return result;
}

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
  TLM_ASSIGN_OR_RETURN(const json root, ParseJson(text));
  if (!root.is_object()) return InvalidArgument("is not a JSON object");
  TLM_ASSIGN_OR_RETURN(const std::string version, ReadString(root, "", "version"));
  if (!version.empty() && version != "1.0") {
    return Unimplemented("version {} is not supported, only '1.0' is", Quoted(version));
  }
  TokenizerDescription result;
  TLM_ASSIGN_OR_RETURN(result.model, ReadModel(root));
  TLM_ASSIGN_OR_RETURN(result.added_tokens, ReadAddedTokens(root));
  TLM_ASSIGN_OR_RETURN(result.normalizer, ReadNormalizer(root));
  TLM_ASSIGN_OR_RETURN(result.pre_tokenizer, ReadPreTokenizer(root));
  TLM_ASSIGN_OR_RETURN(result.frame, ReadPostProcessor(root));
  TLM_RETURN_IF_ERROR(CheckDecoder(root));
  return result;
}

}  // namespace tlm
