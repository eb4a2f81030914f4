// Texts with the ids that other implementations gave them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

struct Vectors {
  const char* tokenizer;  // tokenizer/<this>/tokenizer.json
  const char* llama_cpp;
  const char* transformers_js;
  // Entries of the file that are about this vocabulary. The others of vectors_gpt2.json (gpt-4,
  // gpt-4o, claude, santacoder, CodeGPT, codeparrot) are about vocabularies of their own.
  std::vector<std::string> models;
  size_t transformers_js_cases;
};

std::ostream& operator<<(std::ostream& out, const Vectors& vectors) {
  return out << vectors.tokenizer;
}

class TokenizerVectorsTest : public ::testing::TestWithParam<Vectors> {
 protected:
  void SetUp() override {
    const auto path =
        OraclePath("tokenizer/" + std::string(GetParam().tokenizer) + "/tokenizer.json");
    if (!path.has_value()) GTEST_SKIP() << "the oracle directory is not beside the checkout";
    auto tokenizer = Tokenizer::Load(*path);
    ASSERT_THAT(tokenizer, IsOk());
    tokenizer_ = *std::move(tokenizer);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerVectorsTest, EncodesAsLlamaCppDoes) {
  const std::string base =
      *OraclePath("tokenizer/llama-cpp") + "/ggml-vocab-" + GetParam().llama_cpp + ".gguf";
  const std::vector<std::string> texts = SplitAt(ReadAll(base + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = SplitAt(ReadAll(base + ".out"), "\n");
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_EQ(lines.size(), 46u);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(lines[i]);
    const std::vector<int32_t> expected{std::istream_iterator<int32_t>(line), {}};
    const auto ids = tokenizer_->Encode(texts[i], false);
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(*ids, expected) << texts[i];
    EXPECT_EQ(tokenizer_->Decode(*ids), texts[i]);
  }
}

TEST_P(TokenizerVectorsTest, EncodesAndDecodesAsTransformersJsDoes) {
  const auto file = nlohmann::json::parse(ReadAll(*OraclePath(
      "tokenizer/transformersjs/vectors_" + std::string(GetParam().transformers_js) + ".json")));
  size_t cases = 0;
  for (const std::string& model : GetParam().models) {
    for (const auto& [name, vector] : file.at(model).items()) {
      SCOPED_TRACE(model + " " + name);
      ++cases;
      const auto text = vector.at("text").get<std::string>();
      const auto expected = vector.at("ids").get<std::vector<int32_t>>();
      const auto ids = tokenizer_->Encode(text, true);
      ASSERT_THAT(ids, IsOk());
      EXPECT_EQ(*ids, expected);
      // "decoded" of GPT-2 went through the clean-up of spaces before punctuation that its
      // tokenizer_config.json asks for (" !!" became "!!"), which is no part of decoding.
      const bool is_cleaned_up =
          name == "PUNCTUATION" && std::string(GetParam().tokenizer) == "gpt2";
      EXPECT_EQ(tokenizer_->Decode(expected, false),
                is_cleaned_up ? text : vector.at("decoded").get<std::string>());
    }
  }
  EXPECT_EQ(cases, GetParam().transformers_js_cases);
}

TEST_P(TokenizerVectorsTest, EveryTokenIsFoundByItsBytes) {
  size_t tokens = 0;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (!tokenizer_->TokenBytes(id).empty()) ++tokens;
  }
  EXPECT_EQ(tokens, static_cast<size_t>(tokenizer_->vocab_size()));
  EXPECT_EQ(tokenizer_->TokenBytes(*tokenizer_->TokenToId("Ġthe")), " the");
  const std::optional<int32_t> end = tokenizer_->TokenToId("<|endoftext|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(tokenizer_->IsSpecial(*end));
}

// The Qwen 2 vectors hold for Qwen 3: its vocabulary and merges are the same, and the tokens added
// since occur in none of the texts.
INSTANTIATE_TEST_SUITE_P(
    Published, TokenizerVectorsTest,
    ::testing::Values(
        Vectors{"gpt2", "gpt-2", "gpt2", {"Xenova/gpt2", "openai-community/gpt2"}, 52},
        Vectors{"qwen3", "qwen2", "qwen2", {"Xenova/Qwen1.5-0.5B-Chat"}, 25}),
    [](const auto& info) { return std::string(info.param.tokenizer); });

}  // namespace
}  // namespace tlm
