#include "server/rpc/output/claim_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

constexpr FinishReason kRows = FinishReason::kRowsComplete;

// An output of which tokens are claimed, and what the engine draws. Its prompt has 3 tokens, the
// context 20.
struct Output {
  const char* name;
  std::vector<int32_t> claimed;
  std::vector<int32_t> drawn;
  uint32_t verified;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  // of the output, if it ends
  FinishReason told = kRows;                                // by the engine
  std::string stop_string = "";
  size_t to_draw = 0;  // 0: all that are claimed
  int64_t min_new_tokens = 0;
  int64_t max_new_tokens = 20;
};

class ClaimCheckTest : public ::testing::TestWithParam<Output> {
 protected:
  static GenerateCall CallOf(const Output& output) {
    GenerateCall call;
    call.prompt = {1, 2, 3};
    call.work.stop = {.max_new_tokens = output.max_new_tokens,
                      .min_new_tokens = output.min_new_tokens,
                      .ending_ids = EndingIds({kEosId})};
    call.work.claimed = output.claimed;
    if (!output.stop_string.empty()) call.output.stop_strings = {output.stop_string};
    return call;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
};

TEST_P(ClaimCheckTest, TellsHowMuchIsVerifiedAndWhatComesInstead) {
  const Output& output = GetParam();
  const std::vector<int32_t>& claimed = output.claimed;
  ClaimCheck check(CallOf(output), tokenizer_.get(), 20);
  EXPECT_EQ(check.to_draw(), output.to_draw > 0 ? output.to_draw : claimed.size());
  for (const int32_t id : output.drawn) check.Add(id);
  StreamEnd end;
  end.reason = output.told;
  end.matched_token = output.told == FinishReason::kEos ? kEosId : -1;
  v1::VerifyResponse verdict;
  ASSERT_THAT(check.FillVerdict(end, verdict), IsOk());
  EXPECT_EQ(verdict.verified_token_count(), output.verified);
  const bool verified = output.verified == claimed.size();
  EXPECT_EQ(verdict.verified(), verified);
  EXPECT_EQ(verdict.has_mismatch(), !verified);
  EXPECT_EQ(verdict.finish_reason(), verified ? output.finish : v1::FINISH_REASON_UNSPECIFIED);
  if (verified) return;
  const v1::VerifyResponse::Mismatch& mismatch = verdict.mismatch();
  EXPECT_EQ(mismatch.index(), output.verified);
  EXPECT_EQ(mismatch.position(), 3 + output.verified);
  EXPECT_EQ(mismatch.claimed_token_id(), static_cast<uint32_t>(claimed[output.verified]));
  if (output.drawn.size() > output.verified) {
    EXPECT_EQ(mismatch.token_id(), static_cast<uint32_t>(output.drawn[output.verified]));
  } else {
    EXPECT_EQ(mismatch.drawn_case(), v1::VerifyResponse::Mismatch::kFinished);
    EXPECT_EQ(mismatch.finished(), output.finish);
  }
}

std::vector<Output> Outputs() {
  using enum v1::FinishReason;
  const auto ids = ByteIds;
  const std::vector<int32_t> none;
  const std::vector<int32_t> a = {'a'};
  const std::vector<int32_t> ended = {'a', kEosId};
  return {{"ABeginningOfTheOutput", ids("abc"), ids("abc"), 3},
          {"AnotherToken", ids("abc"), ids("ax"), 1},
          // The engine may say of it that it ends the output.
          {"AnotherTokenThatEndsTheOutput", ids("abc"), ended, 1, {}, FinishReason::kEos},
          {"TokensAfterAMismatch", ids("abc"), ids("xbc"), 0},
          {"AnEndWithTheLastToken", ended, ended, 2, FINISH_REASON_EOS, FinishReason::kEos},
          {"TheSameByTheRulesAlone", ended, ended, 2, FINISH_REASON_EOS},
          {"TheLongestOutput", ids("ab"), ids("ab"), 2, FINISH_REASON_LENGTH, kRows, "", 0, 0, 2},
          {"MoreThanTheLongestOutput", ids("abc"), ids("ab"), 2, FINISH_REASON_LENGTH,
           FinishReason::kLength, "", 0, 0, 2},
          {"ATokenAfterAnEnd", {'a', kEosId, 'b'}, ended, 2, FINISH_REASON_EOS, FinishReason::kEos},
          {"AConstraintBeforeTheFirstToken", a, none, 0, FINISH_REASON_CONSTRAINT_COMPLETE,
           FinishReason::kConstraintComplete},
          {"AStopString", ids("ab STOP"), ids("ab STOP"), 7, FINISH_REASON_STOP, kRows, "STOP"},
          {"TokensAfterAStopString", ids("ab STOP it"), ids("ab STOP"), 7, FINISH_REASON_STOP,
           kRows, "STOP", 7},
          {"WithoutTheTokensOfAStopString", ids("ab "), ids("ab "), 3, {}, kRows, "STOP"},
          {"AStopStringInAWrongClaim", ids("abc"), ids("ax"), 1, {}, kRows, "b", 2},
          {"AStopStringBelowTheMinimum", ids("abab"), ids("abab"), 4, FINISH_REASON_STOP, kRows,
           "b", 0, 2},
          {"AStopStringAtTheLength", ids("ab"), ids("ab"), 2, FINISH_REASON_STOP,
           FinishReason::kLength, "b", 0, 0, 2},
          // The end of an output completes its last character.
          {"ACharacterThatIsCutAsAStopString", ids("a\xc3"), ids("a\xc3"), 2, FINISH_REASON_STOP,
           FinishReason::kLength, "\xef\xbf\xbd", 0, 0, 2}};
}
INSTANTIATE_TEST_SUITE_P(Outputs, ClaimCheckTest, ::testing::ValuesIn(Outputs()),
                         [](const auto& info) { return info.param.name; });

TEST_F(ClaimCheckTest, AnEngineThatStopsEarlyIsAFault) {
  ClaimCheck check(CallOf({"", ByteIds("abc"), {}, 0}), tokenizer_.get(), 20);
  check.Add('a');
  StreamEnd end;
  end.reason = kRows;
  v1::VerifyResponse verdict;
  EXPECT_THAT(check.FillVerdict(end, verdict), IsInternal("1 of 3"));
}

}  // namespace
}  // namespace tlm
