#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_component.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

using nlohmann::json;

// Refuses options of BPE that are not supported.
absl::Status CheckModelOptions(const JsonFields& model) {
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TLM_ASSIGN_OR_RETURN(const std::string value, model.String(key, ""));
    if (!value.empty()) return Unimplemented("model.{} {} is not supported", key, Quoted(value));
  }
  const json* const dropout = model.Find("dropout");
  if (dropout == nullptr) return absl::OkStatus();
  if (!dropout->is_number()) return model.WrongType("dropout", *dropout, "a number");
  if (dropout->get<double>() != 0) {
    return Unimplemented("model.dropout {} is not supported: it makes tokens a matter of chance",
                         dropout->dump());
  }
  return absl::OkStatus();
}

absl::Status ReadVocab(const JsonFields& model, ModelDescription* result) {
  TLM_RETURN_IF_ERROR(model.RequiredObject("vocab").status());
  const json* const vocab = model.Find("vocab");
  if (vocab->empty()) return InvalidArgument("model.vocab is empty");
  result->vocab.reserve(vocab->size());
  for (const auto& [token, value] : vocab->items()) {
    const absl::StatusOr<int32_t> id = ReadTokenId(value, "its id");
    if (!id.ok()) return WithContext(id.status(), "model.vocab: token " + Quoted(token));
    result->vocab.emplace_back(token, *id);
  }
  return absl::OkStatus();
}

// Reads "a b" or ["a", "b"].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const json& merge, size_t rank) {
  constexpr std::string_view kWanted = "a string \"a b\" or an array [\"a\", \"b\"]";
  const auto wrong = [&] {
    return WrongJsonType(fmt::format("model.merges[{}]", rank), merge, kWanted);
  };
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    std::optional<std::pair<std::string, std::string>> parts = SplitMerge(text);
    if (!parts.has_value()) return wrong();
    return *std::move(parts);
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    return wrong();
  }
  return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
}

absl::Status ReadMerges(const JsonFields& model, ModelDescription* result) {
  TLM_ASSIGN_OR_RETURN(const json* const merges, model.RequiredArray("merges"));
  result->merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const json& merge = (*merges)[i];
    if (merge.is_string() && IsMergesVersion(merge.get_ref<const std::string&>())) continue;
    TLM_ASSIGN_OR_RETURN(result->merges.emplace_back(), ReadMerge(merge, i));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelDescription> ReadBpe(const JsonFields& model, TokenizerJson& parsed) {
  TLM_RETURN_IF_ERROR(CheckModelOptions(model));
  ModelDescription result;
  if (parsed.vocab.has_value() && !parsed.vocab->empty()) {
    result.vocab = *std::move(parsed.vocab);
  } else {
    TLM_RETURN_IF_ERROR(ReadVocab(model, &result));
  }
  if (parsed.merges.has_value()) {
    result.merges = *std::move(parsed.merges);
  } else {
    TLM_RETURN_IF_ERROR(ReadMerges(model, &result));
  }
  TLM_ASSIGN_OR_RETURN(result.ignore_merges, model.Bool("ignore_merges", false));
  TLM_ASSIGN_OR_RETURN(result.byte_fallback, model.Bool("byte_fallback", false));
  TLM_ASSIGN_OR_RETURN(result.fuse_unknown, model.Bool("fuse_unk", false));
  TLM_ASSIGN_OR_RETURN(result.unknown_token, model.String("unk_token", ""));
  return result;
}

// Returns a score as Hugging Face's tokenizers read it. Their JSON library divides the digits, read
// as a whole number, by a power of ten, which rounds twice for 17 digits and may miss the nearest
// double by its last bit. Such bits decide between divisions of a text that are equally likely ("-"
// "--" and "--" "-"). The digits are the fewest that distinguish doubles, which is what JSON
// writers write.
double ScoreAsRead(double score) {
  if (!std::isfinite(score)) return score;
  const std::string text = fmt::format("{}", std::fabs(score));
  uint64_t digits = 0;
  int exponent = 0;
  bool after_point = false;
  for (const char& c : text) {
    if (c == 'e') {
      exponent += std::atoi(&c + 1);
      break;
    }
    if (c == '.') {
      after_point = true;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(c - '0');
      exponent -= after_point ? 1 : 0;
    }
  }
  const auto power = [](int n) { return std::strtod(fmt::format("1e{}", n).c_str(), nullptr); };
  auto result = static_cast<double>(digits);
  for (; exponent < -308; exponent += 308) result /= power(308);
  result = exponent < 0 ? result / power(-exponent) : result * power(exponent);
  return std::copysign(result, score);
}

// Reads "vocab": [["<unk>", 0.0], ["▁the", -3.5]]; the id of a piece is its index.
absl::StatusOr<ModelDescription> ReadUnigram(const JsonFields& model) {
  TLM_ASSIGN_OR_RETURN(const json* const vocab, model.RequiredArray("vocab"));
  if (vocab->size() > static_cast<size_t>(kMaxTokenIds)) {
    return InvalidArgument("model.vocab has {} pieces, the limit is {}", vocab->size(),
                           kMaxTokenIds);
  }
  ModelDescription result;
  result.kind = ModelDescription::kUnigram;
  for (const json& entry : *vocab) {
    const auto id = static_cast<int32_t>(result.vocab.size());
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return WrongJsonType(fmt::format("model.vocab[{}]", id), entry, "an array [piece, score]");
    }
    result.vocab.emplace_back(entry[0].get<std::string>(), id);
    result.scores.push_back(ScoreAsRead(entry[1].get<double>()));
  }
  if (const json* const unknown = model.Find("unk_id"); unknown != nullptr) {
    TLM_ASSIGN_OR_RETURN(result.unknown_id, ReadTokenId(*unknown, "model.unk_id"));
  }
  TLM_ASSIGN_OR_RETURN(result.byte_fallback, model.Bool("byte_fallback", false));
  return result;
}

}  // namespace

absl::StatusOr<ModelDescription> ReadModel(TokenizerJson& parsed) {
  TLM_ASSIGN_OR_RETURN(const JsonFields model, JsonFields(parsed.root).RequiredObject("model"));
  TLM_ASSIGN_OR_RETURN(const std::string type, model.String("type", ""));
  const json* const vocab = model.Find("vocab");
  // Older files name no type; the form of the vocabulary then shows it.
  const bool looks_like_unigram =
      type.empty() && vocab != nullptr && vocab->is_array() && !model.Has("merges");
  if (type == "Unigram" || looks_like_unigram) return ReadUnigram(model);
  if (type.empty() || type == "BPE") return ReadBpe(model, parsed);
  return Unimplemented("model.type {} is not supported, only 'BPE' and 'Unigram' are",
                       Quoted(type));
}

}  // namespace tlm
