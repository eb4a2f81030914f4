#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class ScoreTest : public CommandFixture {
 protected:
  ScoreTest() {
    server_.score.responses = {Proto<v1::ScoreResponse>(R"(
        scores { sum_logprob: -1.5 token_count: 2 is_greedy: true
                 tokens { id: 10 bytes: " Par" logprob: -0.75 rank: 1 }
                 tokens { id: 11 bytes: "is" logprob: -0.75 rank: 1 } }
        scores { sum_logprob: -12.25 token_count: 1
                 tokens { id: 12 bytes: " Rome" logprob: -0.75 rank: 1 } })")};
  }
};

TEST_F(ScoreTest, PrintsOneRowAContinuation) {
  EXPECT_EQ(Run({"score", "The capital is", " Paris", " Rome"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(),
            "     continuation  tokens  sum logprob      mean  perplexity  greedy\n"
            "[0]  \" Paris\"           2      -1.5000   -0.7500       2.117  yes\n"
            "[1]  \" Rome\"            1     -12.2500  -12.2500  2.0898e+05  no\n");
  EXPECT_EQ(err_.str(), "");
  EXPECT_THAT(server_.last_score(), IsProto(R"(
      prompt: "The capital is" continuations { text: " Paris" } continuations { text: " Rome" })"));
}

TEST_F(ScoreTest, TakesPromptAndIdsFromFlags) {
  EXPECT_EQ(Run({"score", "--prompt=", " Paris", "--ids=12", "--add_special_tokens"}), kSuccess);
  EXPECT_THAT(server_.last_score(), IsProto(R"(
      prompt: "" add_special_tokens: true continuations { text: " Paris" }
      continuations { token_ids { ids: 12 } })"));
  EXPECT_THAT(out_.str(), HasSubstr("[1]  12  "));
  EXPECT_EQ(Run("score --prompt_ids=1,2 --ids=10,11;12"), kSuccess);
  EXPECT_THAT(server_.last_score(), IsProto(R"(
      prompt_token_ids { ids: [1, 2] } continuations { token_ids { ids: [10, 11] } }
      continuations { token_ids { ids: 12 } })"));
}

TEST_F(ScoreTest, PrintsTokensWhenAsked) {
  EXPECT_EQ(Run("score p a b --logprobs"), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\n[0]\nposition  id  logprob"));
  EXPECT_THAT(out_.str(), HasSubstr("       1  11  -0.7500     1  \"is\""));
  EXPECT_THAT(out_.str(), HasSubstr("\n[1]\n"));
  EXPECT_EQ(Run("score p a b --top_logprobs=3"), kSuccess);
  EXPECT_EQ(server_.last_score().top_logprobs(), 3u);
  EXPECT_THAT(out_.str(), HasSubstr("alternatives"));
  EXPECT_EQ(Run("score p a b --top_logprobs=3 --nologprobs"), kSuccess);
  EXPECT_THAT(out_.str(), Not(HasSubstr("alternatives")));
}

TEST_F(ScoreTest, PrintsJson) {
  EXPECT_EQ(Run("score p a b --json"), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\"sum_logprob\":-12.25"));
  EXPECT_EQ(out_.str().find('\n'), out_.str().size() - 1);
}

TEST_F(ScoreTest, ShortensLongContinuations) {
  EXPECT_EQ(Run({"score", "p", std::string(1000, 'x') + "\n", "--ids=12"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("  \"" + std::string(44, 'x') + "...       2"));
}

TEST_F(ScoreTest, RefusesWrongUsage) {
  ExpectUsageErrors("score", {"", "p", "--prompt=p", "--prompt_ids=1", "--ids=1",
                              "c --prompt=p --prompt_ids=1", "\xff c", "p \xff", "p c --ids=1;",
                              "p c --top_logprobs=-1", "p c --temperature=1"});
}

}  // namespace
}  // namespace tlm::cli
