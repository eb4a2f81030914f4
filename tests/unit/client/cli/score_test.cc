#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ScoreTest : public CommandFixture {
 protected:
  void SetUp() override {
    server_.score.responses.resize(1);
    v1::ContinuationScore& first = *server_.score.responses[0].add_scores();
    first.set_sum_logprob(-1.5);
    first.set_token_count(2);
    first.set_is_greedy(true);
    AddToken(" Par", 10, &first);
    AddToken("is", 11, &first);
    v1::ContinuationScore& second = *server_.score.responses[0].add_scores();
    second.set_sum_logprob(-12.25);
    second.set_token_count(1);
    AddToken(" Rome", 12, &second);
  }
  static void AddToken(const std::string& bytes, uint32_t id, v1::ContinuationScore* score) {
    v1::TokenInfo& token = *score->add_tokens();
    token.set_id(id);
    token.set_bytes(bytes);
    token.set_logprob(-0.75f);
    token.set_rank(1);
  }
};

TEST_F(ScoreTest, PrintsOneRowAContinuation) {
  EXPECT_EQ(Run({"score", "The capital is", " Paris", " Rome"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(),
            "     continuation  tokens  sum logprob      mean  perplexity  greedy\n"
            "[0]  \" Paris\"           2      -1.5000   -0.7500       2.117  yes\n"
            "[1]  \" Rome\"            1     -12.2500  -12.2500  2.0898e+05  no\n");
  EXPECT_EQ(err_.str(), "");
  const v1::ScoreRequest request = server_.last_score();
  EXPECT_EQ(request.prompt(), "The capital is");
  ASSERT_EQ(request.continuations_size(), 2);
  EXPECT_EQ(request.continuations(0).text(), " Paris");
  EXPECT_FALSE(request.has_add_special_tokens());
}

TEST_F(ScoreTest, TakesPromptAndIdsFromFlags) {
  EXPECT_EQ(Run({"score", "--prompt=", " Paris", "--ids=12", "--add_special_tokens"}), kSuccess);
  v1::ScoreRequest request = server_.last_score();
  EXPECT_TRUE(request.has_prompt());
  EXPECT_EQ(request.prompt(), "");
  EXPECT_TRUE(request.add_special_tokens());
  EXPECT_EQ(request.continuations(0).text(), " Paris");
  EXPECT_THAT(request.continuations(1).token_ids().ids(), ElementsAre(12));
  EXPECT_THAT(out_.str(), HasSubstr("[1]  12  "));

  EXPECT_EQ(Run({"score", "--prompt_ids=1,2", "--ids=10,11;12"}), kSuccess);
  request = server_.last_score();
  EXPECT_THAT(request.prompt_token_ids().ids(), ElementsAre(1, 2));
  EXPECT_THAT(request.continuations(0).token_ids().ids(), ElementsAre(10, 11));
  EXPECT_THAT(request.continuations(1).token_ids().ids(), ElementsAre(12));
}

TEST_F(ScoreTest, PrintsTokensWhenAsked) {
  EXPECT_EQ(Run({"score", "p", "a", "b", "--logprobs"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\n[0]\nposition  id  logprob"));
  EXPECT_THAT(out_.str(), HasSubstr("       1  11  -0.7500     1  \"is\""));
  EXPECT_THAT(out_.str(), HasSubstr("\n[1]\n"));
  EXPECT_EQ(Run({"score", "p", "a", "b", "--top_logprobs=3"}), kSuccess);
  EXPECT_EQ(server_.last_score().top_logprobs(), 3u);
  EXPECT_THAT(out_.str(), HasSubstr("alternatives"));
  EXPECT_EQ(Run({"score", "p", "a", "b", "--top_logprobs=3", "--nologprobs"}), kSuccess);
  EXPECT_THAT(out_.str(), Not(HasSubstr("alternatives")));
}

TEST_F(ScoreTest, PrintsJson) {
  EXPECT_EQ(Run({"score", "p", "a", "b", "--json"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\"sum_logprob\":-12.25"));
  EXPECT_EQ(out_.str().find('\n'), out_.str().size() - 1);
}

TEST_F(ScoreTest, ShortensLongContinuations) {
  EXPECT_EQ(Run({"score", "p", std::string(1000, 'x') + "\n", "--ids=12"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("  \"" + std::string(44, 'x') + "...       2"));
}

TEST_F(ScoreTest, ReportsServerErrors) {
  server_.score.status =
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "continuations[0]: empty");
  EXPECT_EQ(Run({"score", "p", ""}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: score: INVALID_ARGUMENT: continuations[0]: empty\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ScoreTest, RefusesWrongUsage) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"score"},
                                             {"score", "p"},
                                             {"score", "--prompt=p"},
                                             {"score", "--prompt_ids=1"},
                                             {"score", "--ids=1"},
                                             {"score", "c", "--prompt=p", "--prompt_ids=1"},
                                             {"score", "\xff", "c"},
                                             {"score", "p", "\xff"},
                                             {"score", "p", "c", "--ids=1;"},
                                             {"score", "p", "c", "--top_logprobs=-1"},
                                             {"score", "p", "c", "--temperature=1"}}) {
    EXPECT_EQ(Run(args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: score: "));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
}

}  // namespace
}  // namespace tlm::cli
