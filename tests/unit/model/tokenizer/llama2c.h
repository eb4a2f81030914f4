// The vocabulary stories260K/tok512 of llama2.c, and what llama2.c makes of texts with it.
#ifndef TLM_TESTS_UNIT_MODEL_TOKENIZER_LLAMA2C_H_
#define TLM_TESTS_UNIT_MODEL_TOKENIZER_LLAMA2C_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/tokenizer/small_sentencepiece.h"

namespace tlm {

// The file has the length of the longest piece, then score, length and bytes of every piece. Its
// spaces are SentencePiece's marks, and it frames the special pieces with newlines.
inline ScoredPieces PiecesOfLlama2c(const std::string& folder) {
  const std::string file = ReadAll(folder + "/tok512.bin");
  ScoredPieces pieces;
  for (size_t position = 4; position < file.size();) {
    float score;
    uint32_t length;
    std::memcpy(&score, &file[position], sizeof(score));
    std::memcpy(&length, &file[position + 4], sizeof(length));
    std::string piece = file.substr(position + 8, length);
    position += 8 + length;
    if (length > 1) std::erase(piece, '\n');
    pieces.emplace_back(WithMarks(piece), score);
  }
  EXPECT_EQ(pieces.size(), 512u);
  return pieces;
}

inline void ExpectIdsOfLlama2c(const Tokenizer& tokenizer, const std::string& folder) {
  const auto vectors =
      nlohmann::json::parse(ReadAll(folder + "/expected/tokenizer_vectors_run_c.json"));
  ASSERT_EQ(vectors.at("tok512").size(), 15u);
  for (const nlohmann::json& vector : vectors.at("tok512")) {
    const auto text = vector.at("text").get<std::string>();
    const auto ids = tokenizer.Encode(text, true);
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(*ids, vector.at("ids_with_bos").get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer.Decode(*ids), text);
  }
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_TOKENIZER_LLAMA2C_H_
