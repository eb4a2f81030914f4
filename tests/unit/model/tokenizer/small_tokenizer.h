// A small tokenizer.json for tests, made rather than stored.
#ifndef TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_TOKENIZER_H_
#define TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_TOKENIZER_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm {

using PlainMerges = std::vector<std::pair<std::string, std::string>>;

// Every byte is a token whose id is its value; what merge i makes (given in plain bytes) has id
// 256 + i. GPT-2's components: bare ByteLevel, no normalizer, no added tokens.
inline nlohmann::json SmallTokenizerJson(const PlainMerges& merges = {}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteLevelFromBytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  nlohmann::json merge_list = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    vocab[ByteLevelFromBytes(left + right)] = 256 + merge_list.size();
    merge_list.push_back(ByteLevelFromBytes(left) + " " + ByteLevelFromBytes(right));
  }
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", {{"type", "ByteLevel"}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

inline nlohmann::json AddedTokenJson(int id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content}, {"special", special}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
}

// Ends the program when the tokenizer is refused: for tests about something else.
inline std::unique_ptr<Tokenizer> MakeTokenizer(const nlohmann::json& json) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromJson(json.dump());
  if (!tokenizer.ok()) CheckFailed(__FILE__, __LINE__, tokenizer.status().ToString());
  return *std::move(tokenizer);
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_TOKENIZER_SMALL_TOKENIZER_H_
