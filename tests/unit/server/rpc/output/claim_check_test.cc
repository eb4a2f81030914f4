#include "server/rpc/output/claim_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

StreamEnd EndedBy(FinishReason reason, int32_t matched = -1) {
  StreamEnd end;
  end.reason = reason;
  end.matched_token = matched;
  return end;
}

// The prompt has 3 tokens, the context 20.
class ClaimCheckTest : public ::testing::Test {
 protected:
  ClaimCheckTest() {
    call_.prompt = {1, 2, 3};
    call_.work.stop.max_new_tokens = 20;
    call_.work.stop.ending_ids = EndingIds({kEosId});
  }

  void Claim(std::string_view text) { Claim(ByteIds(text)); }
  void Claim(std::vector<int32_t> ids) {
    call_.work.claimed = std::move(ids);
    check_.emplace(call_, tokenizer_.get(), 20);
  }
  void Draw(std::string_view text) {
    for (const int32_t id : ByteIds(text)) check_->Add(id);
  }
  v1::VerifyResponse Verdict(const StreamEnd& end = EndedBy(FinishReason::kRowsComplete)) const {
    v1::VerifyResponse verdict;
    EXPECT_THAT(check_->FillVerdict(end, verdict), IsOk());
    return verdict;
  }
  // Of the claimed tokens `verified` are right, and the output ends with them.
  void ExpectEnd(const StreamEnd& end, uint32_t verified, v1::FinishReason reason) const {
    const v1::VerifyResponse verdict = Verdict(end);
    EXPECT_EQ(verdict.verified_token_count(), verified);
    if (verified == call_.work.claimed.size()) {
      EXPECT_TRUE(verdict.verified());
      EXPECT_FALSE(verdict.has_mismatch());
      EXPECT_EQ(verdict.finish_reason(), reason);
      return;
    }
    EXPECT_FALSE(verdict.verified());
    EXPECT_EQ(verdict.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
    EXPECT_EQ(verdict.mismatch().index(), verified);
    EXPECT_EQ(verdict.mismatch().position(), 3 + verified);
    EXPECT_EQ(verdict.mismatch().claimed_token_id(),
              static_cast<uint32_t>(call_.work.claimed[verified]));
    EXPECT_EQ(verdict.mismatch().drawn_case(), v1::VerifyResponse::Mismatch::kFinished);
    EXPECT_EQ(verdict.mismatch().finished(), reason);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  GenerateCall call_;
  std::optional<ClaimCheck> check_;
};

TEST_F(ClaimCheckTest, ABeginningOfTheOutputIsVerified) {
  Claim("abc");
  EXPECT_EQ(check_->to_draw(), 3u);
  Draw("abc");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 3, v1::FINISH_REASON_UNSPECIFIED);
}

TEST_F(ClaimCheckTest, AnotherTokenIsTold) {
  Claim("abc");
  Draw("ax");
  const v1::VerifyResponse verdict = Verdict();
  EXPECT_FALSE(verdict.verified());
  EXPECT_EQ(verdict.verified_token_count(), 1u);
  EXPECT_EQ(verdict.mismatch().index(), 1u);
  EXPECT_EQ(verdict.mismatch().position(), 4u);
  EXPECT_EQ(verdict.mismatch().claimed_token_id(), static_cast<uint32_t>('b'));
  EXPECT_EQ(verdict.mismatch().token_id(), static_cast<uint32_t>('x'));
}

// An engine may say of such a token that it ends the output.
TEST_F(ClaimCheckTest, AnotherTokenThatEndsTheOutputIsAToken) {
  Claim("abc");
  Draw("a");
  check_->Add(kEosId);
  const v1::VerifyResponse verdict = Verdict(EndedBy(FinishReason::kEos, kEosId));
  EXPECT_EQ(verdict.mismatch().index(), 1u);
  EXPECT_EQ(verdict.mismatch().token_id(), static_cast<uint32_t>(kEosId));
}

TEST_F(ClaimCheckTest, TokensBehindAMismatchDoNotCount) {
  Claim("abc");
  Draw("xbc");
  EXPECT_EQ(Verdict().verified_token_count(), 0u);
  EXPECT_EQ(Verdict().mismatch().token_id(), static_cast<uint32_t>('x'));
}

TEST_F(ClaimCheckTest, AnOutputMayEndWithTheLastToken) {
  Claim({'a', kEosId});
  Draw("a");
  check_->Add(kEosId);
  ExpectEnd(EndedBy(FinishReason::kEos, kEosId), 2, v1::FINISH_REASON_EOS);
  // The same by the rules alone.
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 2, v1::FINISH_REASON_EOS);
}

TEST_F(ClaimCheckTest, TheLongestOutputEndsByItsLength) {
  call_.work.stop.max_new_tokens = 2;
  Claim("ab");
  Draw("ab");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 2, v1::FINISH_REASON_LENGTH);
  Claim("abc");
  Draw("ab");
  ExpectEnd(EndedBy(FinishReason::kLength), 2, v1::FINISH_REASON_LENGTH);
}

TEST_F(ClaimCheckTest, NothingMayBeClaimedBehindAnEnd) {
  Claim({'a', kEosId, 'b'});
  Draw("a");
  check_->Add(kEosId);
  ExpectEnd(EndedBy(FinishReason::kEos, kEosId), 2, v1::FINISH_REASON_EOS);
}

TEST_F(ClaimCheckTest, AConstraintMayEndItBeforeTheFirstToken) {
  Claim("a");
  ExpectEnd(EndedBy(FinishReason::kConstraintComplete), 0, v1::FINISH_REASON_CONSTRAINT_COMPLETE);
}

TEST_F(ClaimCheckTest, AStopStringEndsTheOutput) {
  call_.output.stop_strings = {"STOP"};
  Claim("ab STOP");
  EXPECT_EQ(check_->to_draw(), 7u);
  Draw("ab STOP");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 7, v1::FINISH_REASON_STOP);
  // What is behind it is not drawn.
  Claim("ab STOP it");
  EXPECT_EQ(check_->to_draw(), 7u);
  Draw("ab STOP");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 7, v1::FINISH_REASON_STOP);
  // Without the tokens of the stop string it goes on.
  Claim("ab ");
  Draw("ab ");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 3, v1::FINISH_REASON_UNSPECIFIED);
}

TEST_F(ClaimCheckTest, AStopStringInAWrongClaimEndsNothing) {
  call_.output.stop_strings = {"b"};
  Claim("abc");
  EXPECT_EQ(check_->to_draw(), 2u);
  Draw("ax");
  EXPECT_EQ(Verdict().mismatch().token_id(), static_cast<uint32_t>('x'));
}

TEST_F(ClaimCheckTest, StopStringsAreIgnoredBelowTheMinimum) {
  call_.output.stop_strings = {"b"};
  call_.work.stop.min_new_tokens = 2;
  Claim("abab");
  EXPECT_EQ(check_->to_draw(), 4u);
  Draw("abab");
  ExpectEnd(EndedBy(FinishReason::kRowsComplete), 4, v1::FINISH_REASON_STOP);
}

TEST_F(ClaimCheckTest, AStopStringComesBeforeALength) {
  call_.output.stop_strings = {"b"};
  call_.work.stop.max_new_tokens = 2;
  Claim("ab");
  Draw("ab");
  ExpectEnd(EndedBy(FinishReason::kLength), 2, v1::FINISH_REASON_STOP);
}

// The end of an output completes its last character.
TEST_F(ClaimCheckTest, ACharacterThatIsCutMayBeAStopString) {
  call_.output.stop_strings = {"\xef\xbf\xbd"};
  call_.work.stop.max_new_tokens = 2;
  Claim("a\xc3");
  Draw("a\xc3");
  ExpectEnd(EndedBy(FinishReason::kLength), 2, v1::FINISH_REASON_STOP);
}

TEST_F(ClaimCheckTest, AnEngineThatStopsEarlyIsAFault) {
  Claim("abc");
  Draw("a");
  v1::VerifyResponse verdict;
  EXPECT_THAT(check_->FillVerdict(EndedBy(FinishReason::kRowsComplete), verdict),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("1 of 3")));
}

}  // namespace
}  // namespace tlm
