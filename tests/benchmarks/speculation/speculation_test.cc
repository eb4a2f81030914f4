// The texts of speculation_bench, and the model that says them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/constraint/constraint.h"
#include "tests/benchmarks/noop_model.h"
#include "tests/benchmarks/speculation/tasks.h"
#include "tests/benchmarks/speculation/teacher.h"
#include "tests/support/status_matchers.h"

namespace tlm::bench {
namespace {

constexpr BatchLimits kLimits{
    .max_tokens = 8, .max_sequences = 8, .max_logits_rows = 8, .max_context = 4096};

class TeacherTest : public ::testing::Test {
 protected:
  // What is sampled for the token at this position.
  absl::StatusOr<SampledToken> Sample(uint64_t seed, uint64_t position,
                                      const TokenMask* mask = nullptr) {
    const SamplingParams params{.temperature = 0, .seed = seed};
    const TokenHistory history;
    Batch batch;
    batch.token_ids = {1};
    batch.logits_rows = {0};
    batch.jobs = {
        {.params = &params, .history = &history, .key = {.position = position}, .mask = mask}};
    return teacher_.Forward(batch)->tokens.front();
  }
  int32_t Id(uint64_t seed, uint64_t position) { return Sample(seed, position)->id; }

  NoopModel model_{kLimits, 8, 0};
  Teacher teacher_{model_};
};

TEST_F(TeacherTest, SaysItsLessonsAndNothingElseOfItsOwn) {
  teacher_.Teach({{.prompt_tokens = 3, .output = {7, 8}}, {.prompt_tokens = 1, .output = {9}}});
  EXPECT_EQ(Id(0, 3), 7);
  EXPECT_EQ(Id(0, 4), 8);
  EXPECT_EQ(Id(1, 1), 9);
  // All logits are equal: the model says 0.
  EXPECT_EQ(Id(0, 5), 0);
  EXPECT_EQ(Id(2, 1), 0);
  teacher_.Teach({});
  EXPECT_EQ(Id(0, 3), 0);
  teacher_.WaitUntilIdle();
}

TEST_F(TeacherTest, LeavesAFailedJobAsItIs) {
  teacher_.Teach({{.prompt_tokens = 3, .output = {7}}});
  const FixedMask never(std::nullopt);
  EXPECT_FALSE(Sample(0, 3, &never).ok());
}

TEST_F(TeacherTest, IsRightAsOftenAsAsked) {
  constexpr int kTokens = 2000;
  teacher_.Teach({{.prompt_tokens = 1, .output = std::vector<int32_t>(kTokens, 5)}}, 0.8);
  int right = 0;
  for (uint64_t position = 1; position <= kTokens; ++position) {
    const int32_t said = Id(0, position);
    EXPECT_EQ(Id(0, position), said);
    right += said == 5 ? 1 : 0;
  }
  // Five standard deviations of a binomial distribution.
  EXPECT_NEAR(right, 1600, 90);
  teacher_.Teach({{.prompt_tokens = 1, .output = {63}}}, 0);
  EXPECT_EQ(Id(0, 1), 0);  // within the vocabulary of 64
}

std::string Corpus(int words) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (uint32_t letters = 1 + random() % 8; letters > 0; --letters) {
      text += static_cast<char>('a' + random() % 26);
    }
    text += i % 12 == 11 ? ".\n" : " ";
  }
  return text;
}

class TasksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = std::getenv("TLM_SOURCE_DIR");
    auto tokenizer = Tokenizer::Load(source + "/model/demo/tokenizer.json");
    ASSERT_THAT(tokenizer, IsOk());
    tokenizer_ = *std::move(tokenizer);
    auto tasks = MakeTasks(*tokenizer_, Corpus(3000), kOptions);
    ASSERT_THAT(tasks, IsOk());
    tasks_ = *std::move(tasks);
  }
  const Task& Find(std::string_view name) const {
    return *std::ranges::find(tasks_, name, &Task::name);
  }
  std::string Text(const std::vector<int32_t>& ids) const { return tokenizer_->Decode(ids); }

  static constexpr TaskOptions kOptions{
      .pieces = 3, .prompt_tokens = 200, .output_tokens = 100, .own_text = true};
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Task> tasks_;
};

TEST_F(TasksTest, EveryPieceIsAsLongAsAskedAndDifferent) {
  ASSERT_EQ(tasks_.size(), 8u);
  for (const Task& task : tasks_) {
    ASSERT_EQ(task.pieces.size(), 3u) << task.name;
    EXPECT_NE(task.pieces[0].prompt, task.pieces[1].prompt) << task.name;
    for (const Piece& piece : task.pieces) {
      // Whole words, and whole records.
      EXPECT_GE(piece.prompt.size(), 120u) << task.name;
      EXPECT_LE(piece.prompt.size(), 220u) << task.name;
      EXPECT_EQ(piece.output.size(), task.taught() ? 100u : 0u) << task.name;
    }
  }
}

TEST_F(TasksTest, ARewriteRepeatsMostWordsOfThePrompt) {
  for (const Piece& piece : Find("rewrite").pieces) {
    const std::string prompt = Text(piece.prompt);
    const std::string output = Text(piece.output);
    int words = 0, found = 0;
    // The last word may be cut.
    for (size_t at = 0, end; (end = output.find(' ', at)) != std::string::npos; at = end + 1) {
      ++words;
      found += prompt.find(output.substr(at, end + 1 - at)) == std::string::npos ? 0 : 1;
    }
    EXPECT_GE(words, 15);
    EXPECT_GE(found, words * 3 / 4);
    EXPECT_EQ(prompt.find(output), std::string::npos);
  }
}

TEST_F(TasksTest, ProseGoesOnWhereThePromptEnds) {
  const Piece& piece = Find("prose").pieces.front();
  EXPECT_NE(Corpus(3000).find(Text(piece.prompt) + Text(piece.output)), std::string::npos);
}

TEST_F(TasksTest, RecordsAreOfThePromptAndInTheTokensOfTheConstraint) {
  const Task& task = Find("json");
  for (const Piece& piece : task.pieces) {
    const std::string output = Text(piece.output);
    EXPECT_TRUE(output.starts_with(R"([{"number": )")) << output;
    const size_t begin = output.find(R"("speaker_name": ")") + 17;
    const std::string name = output.substr(begin, output.find('"', begin) - begin);
    EXPECT_NE(Text(piece.prompt).find(name + " says: "), std::string::npos) << output;
    ConstraintMatcher matcher(task.constraint);
    int forced = 0;
    for (const int32_t token : piece.output) {
      const ConstraintMatcher::Allowed allowed = matcher.Next();
      const auto bit = static_cast<size_t>(token);
      ASSERT_TRUE(allowed.tokens[bit / 64] >> (bit % 64) & 1) << output;
      ASSERT_EQ(allowed.forced.value_or(token), token) << output;
      forced += allowed.forced.has_value() ? 1 : 0;
      ASSERT_TRUE(matcher.Accept(token));
    }
    EXPECT_GT(forced, 0);
  }
  EXPECT_EQ(Find("extract").constraint, nullptr);
}

TEST_F(TasksTest, BarsCountWhereTheyAreMeant) {
  EXPECT_EQ(Find("edit").Bar(1, false), 2.5);
  EXPECT_EQ(Find("edit").Bar(1, true), std::nullopt);
  EXPECT_EQ(Find("edit").Bar(16, false), std::nullopt);
  EXPECT_EQ(Find("json").Bar(1, false), 1.25);
  for (const char* name : {"prose", "sampled"}) {
    EXPECT_EQ(Find(name).Bar(1, true), 0.98);
    EXPECT_EQ(Find(name).Bar(4, false), std::nullopt);
    EXPECT_EQ(Find(name).Bar(16, false), 0.98);
  }
}

TEST_F(TasksTest, RefusesAShortCorpus) {
  EXPECT_THAT(MakeTasks(*tokenizer_, Corpus(20), kOptions),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("has 20 plain words, the least is 1000")));
}

}  // namespace
}  // namespace tlm::bench
