#include "client/cli/bench_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace tlm::cli {
namespace {

using testing::HasSubstr;

std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "bench_prompts_test.txt";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

v1::GenerateRequest Prompt(const BenchPrompts& prompts, uint64_t index) {
  v1::GenerateRequest request;
  prompts.Set(index, &request);
  return request;
}

TEST(BenchPromptsTest, RandomPromptsAreAFunctionOfSeedAndIndex) {
  const auto prompts = BenchPrompts::Random(16, 100, 3);
  const auto again = BenchPrompts::Random(16, 100, 3);
  const auto other = BenchPrompts::Random(16, 100, 4);
  ASSERT_TRUE(prompts.ok() && again.ok() && other.ok());
  const std::string first = Prompt(*prompts, 0).SerializeAsString();
  EXPECT_EQ(first, Prompt(*again, 0).SerializeAsString());
  EXPECT_NE(first, Prompt(*prompts, 1).SerializeAsString());
  EXPECT_NE(first, Prompt(*other, 0).SerializeAsString());
  const v1::GenerateRequest tenth = Prompt(*prompts, 9);
  EXPECT_EQ(tenth.prompt_token_ids().ids_size(), 16);
  for (const uint32_t id : tenth.prompt_token_ids().ids()) EXPECT_LT(id, 100u);
}

TEST(BenchPromptsTest, RandomPromptsTakeTheRequestOver) {
  const auto prompts = BenchPrompts::Random(4, 100, 3);
  ASSERT_TRUE(prompts.ok());
  v1::GenerateRequest request;
  prompts->Set(0, &request);
  prompts->Set(1, &request);
  EXPECT_EQ(request.prompt_token_ids().ids_size(), 4);
}

TEST(BenchPromptsTest, RefusesLengthsOutOfRange) {
  for (const uint32_t tokens : {0u, (1u << 20) + 1}) {
    EXPECT_THAT(std::string(BenchPrompts::Random(tokens, 100, 0).status().message()),
                HasSubstr(std::to_string(tokens)));
  }
  EXPECT_FALSE(BenchPrompts::Random(4, 0, 0).ok());
}

TEST(BenchPromptsTest, TakesTheLinesOfAFileInTurn) {
  const auto prompts = BenchPrompts::FromFile(FileWith("one\r\n\n\"two\\n\\u00e9\"\nthr\"ee"));
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ(Prompt(*prompts, 0).prompt(), "one");
  EXPECT_EQ(Prompt(*prompts, 1).prompt(), "two\né");
  EXPECT_EQ(Prompt(*prompts, 2).prompt(), "thr\"ee");
  EXPECT_EQ(Prompt(*prompts, 3).prompt(), "one");
}

TEST(BenchPromptsTest, NamesTheLineThatIsWrong) {
  EXPECT_THAT(std::string(BenchPrompts::FromFile(FileWith("a\n\"b\n")).status().message()),
              HasSubstr("line 2"));
  EXPECT_THAT(std::string(BenchPrompts::FromFile(FileWith("a\xff\n")).status().message()),
              HasSubstr("line 1: the text is not valid UTF-8"));
}

TEST(BenchPromptsTest, RefusesFilesWithoutPrompts) {
  EXPECT_THAT(std::string(BenchPrompts::FromFile(FileWith("\n\n")).status().message()),
              HasSubstr("no prompt"));
  EXPECT_EQ(BenchPrompts::FromFile("/nonexistent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(BenchPrompts::FromFile("/tmp").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tlm::cli
