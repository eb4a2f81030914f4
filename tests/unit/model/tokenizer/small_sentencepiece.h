// Small tokenizer.json files in the layouts of SentencePiece's vocabularies, made for tests.
#ifndef TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_SENTENCEPIECE_H_
#define TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_SENTENCEPIECE_H_

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "model/tokenizer/vocabulary.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {

using ScoredPieces = std::vector<std::pair<std::string, double>>;

// " a b" -> "▁a▁b"
inline std::string WithMarks(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == ' ' ? std::string("▁") : std::string(1, c);
  return result;
}

// "<unk>", "<s>", "</s>" and the 256 bytes, ids 0 to 258; `pieces` follow, each less likely than
// the one before it.
inline ScoredPieces WithBytes(const std::vector<std::string>& pieces) {
  ScoredPieces result = {{"<unk>", 0}, {"<s>", 0}, {"</s>", 0}};
  for (int byte = 0; byte < 256; ++byte) {
    result.emplace_back(ByteTokenName(static_cast<uint8_t>(byte)), 0);
  }
  for (const std::string& piece : pieces) {
    result.emplace_back(WithMarks(piece), 258 - static_cast<double>(result.size()));
  }
  return result;
}

// Every division of a piece into two others, the likeliest piece first.
inline nlohmann::json MergesOf(const ScoredPieces& pieces) {
  std::set<std::string> known;
  for (const auto& [piece, score] : pieces) known.insert(piece);
  std::vector<std::tuple<double, std::string, std::string>> merges;
  for (const auto& [piece, score] : pieces) {
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const std::string left = piece.substr(0, cut);
      const std::string right = piece.substr(cut);
      if (known.count(left) != 0 && known.count(right) != 0)
        merges.emplace_back(-score, left, right);
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
  nlohmann::json result = nlohmann::json::array();
  for (const auto& [score, left, right] : merges) result.push_back({left, right});
  return result;
}

// The layout of Llama 2 and of TinyLlama. Ids are places in `pieces`, of which the first three must
// be "<unk>", "<s>" and "</s>".
inline nlohmann::json LlamaJson(const ScoredPieces& pieces) {
  nlohmann::json vocab = nlohmann::json::object();
  for (size_t id = 0; id < pieces.size(); ++id) vocab[pieces[id].first] = id;
  return {{"version", "1.0"},
          {"added_tokens",
           {AddedTokenJson(0, "<unk>", true), AddedTokenJson(1, "<s>", true),
            AddedTokenJson(2, "</s>", true)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", MergesOf(pieces)}}}};
}

inline nlohmann::json MetaspaceJson(std::string_view scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", "▁"},
          {"prepend_scheme", std::string(scheme)},
          {"split", split}};
}

// The same the way newer files have it: Mistral's with `scheme` "first", without a normalizer.
inline nlohmann::json MistralJson(const ScoredPieces& pieces, std::string_view scheme) {
  nlohmann::json document = LlamaJson(pieces);
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = MetaspaceJson(scheme, false);
  return document;
}

// The layout of T5: a Unigram over `pieces`, of which the first must be "<unk>".
inline nlohmann::json UnigramJson(const ScoredPieces& pieces) {
  nlohmann::json vocab = nlohmann::json::array();
  for (const auto& [piece, score] : pieces) vocab.push_back({WithMarks(piece), score});
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array({AddedTokenJson(0, "<unk>", true)})},
          {"normalizer", nullptr},
          {"pre_tokenizer", MetaspaceJson("always", true)},
          {"post_processor", nullptr},
          {"decoder", MetaspaceJson("always", true)},
          {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_SENTENCEPIECE_H_
