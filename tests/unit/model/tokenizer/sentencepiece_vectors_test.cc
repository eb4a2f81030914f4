// A vocabulary of SentencePiece's BPE and what llama2.c makes of texts with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/tokenizer/small_sentencepiece.h"

namespace tlm {
namespace {

using nlohmann::json;

// llama2.c's file: the length of the longest piece, then score, length and bytes of every piece.
// Its spaces are SentencePiece's marks, and it frames the special pieces with newlines.
ScoredPieces ReadPieces(const std::string& file) {
  ScoredPieces pieces;
  for (size_t position = 4; position < file.size();) {
    float score;
    uint32_t length;
    std::memcpy(&score, &file[position], sizeof(score));
    std::memcpy(&length, &file[position + 4], sizeof(length));
    std::string piece = file.substr(position + 8, length);
    position += 8 + length;
    piece.erase(std::remove(piece.begin(), piece.end(), '\n'), piece.end());
    pieces.emplace_back(WithMarks(piece), score);
  }
  return pieces;
}

class SentencePieceVectorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = OraclePath("stories260K");
    if (!folder.has_value()) GTEST_SKIP() << "the oracle directory is not beside the checkout";
    const ScoredPieces pieces = ReadPieces(ReadAll(*folder + "/tok512.bin"));
    ASSERT_EQ(pieces.size(), 512u);
    tokenizer_ = MakeTokenizer(LlamaJson(pieces));
    const auto file = json::parse(ReadAll(*folder + "/expected/tokenizer_vectors_run_c.json"));
    vectors_ = file.at("tok512");
    ASSERT_EQ(vectors_.size(), 15u);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json vectors_;
};

TEST_F(SentencePieceVectorsTest, EncodesAsLlama2cDoes) {
  for (const json& vector : vectors_) {
    const auto text = vector.at("text").get<std::string>();
    const auto ids = tokenizer_->Encode(text, true);
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(*ids, vector.at("ids_with_bos").get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer_->Decode(*ids), text);
  }
}

}  // namespace
}  // namespace tlm
