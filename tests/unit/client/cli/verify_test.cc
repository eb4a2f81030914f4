#include <string>
#include <utility>
#include <vector>

#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;

class VerifyTest : public CommandFixture {
 protected:
  // What the server answers, one after the other.
  void Answer(const std::vector<std::string>& responses) {
    server_.verify.responses.clear();
    for (const std::string& response : responses) {
      server_.verify.responses.push_back(Proto<v1::VerifyResponse>(response));
    }
  }
  std::string From(const std::string& text) { return "--from=" + FileWith(text); }

  static constexpr char kGoesOn[] = "verified: true verified_token_count: 1";
  static constexpr char kEnds[] =
      "verified: true verified_token_count: 2 finish_reason: FINISH_REASON_EOS";
};

TEST_F(VerifyTest, TakesPromptTokensAndRequestFromFlags) {
  Answer({kGoesOn});
  EXPECT_EQ(Run("verify Once --ids=11,12,13 --seed=7 --temperature=0.5 --max_new_tokens=9 "
                "--regex=a* --num_sequences=2 --output_index=1 --fingerprint=f00d "
                "--request_id=mine"),
            kSuccess)
      << err_.str();
  EXPECT_EQ(out_.str(), "verified: 1 tokens, the output goes on\n");
  ASSERT_EQ(server_.verify_requests().size(), 1u);
  EXPECT_THAT(server_.verify_requests()[0], IsProto(R"(
      claimed_token_ids: [11, 12, 13] request_id: "mine" output_index: 1 fingerprint: "f00d"
      request {
        prompt: "Once" sampling { seed: 7 temperature: 0.5 num_sequences: 2 }
        stopping { max_new_tokens: 9 } output {} regex: "a*" })"));
}

TEST_F(VerifyTest, TellsTheEnd) {
  Answer({kEnds});
  EXPECT_EQ(Run("verify p --ids=1,2"), kSuccess);
  EXPECT_EQ(out_.str(), "verified: 2 tokens, the end: EOS\n");
}

TEST_F(VerifyTest, AMismatchIsAFailure) {
  const std::string mismatch =
      "verified_token_count: 2 mismatch { index: 2 position: 7 claimed_token_id: 11 ";
  Answer({mismatch + "token_id: 290 }"});
  EXPECT_EQ(Run("verify p --ids=1,2,11"), kFailure);
  EXPECT_EQ(out_.str(), "mismatch at token 2 (position 7): claimed 11, the server has 290\n");
  EXPECT_EQ(err_.str(), "");
  Answer({"", mismatch + "finished: FINISH_REASON_STOP }", mismatch + "finished: 2 }"});
  EXPECT_EQ(Run("verify p --ids=1,2,11"), kFailure);
  EXPECT_EQ(out_.str(),
            "mismatch at token 2 (position 7): claimed 11, but the output had ended: STOP\n");
  EXPECT_EQ(Run("verify p --ids=1,2,11 --json"), kFailure);
  EXPECT_THAT(out_.str(), HasSubstr("\"finished\":\"FINISH_REASON_STOP\""));
}

// What `tlm generate --save` writes is what Verify takes.
TEST_F(VerifyTest, TakesWhatGenerateSaved) {
  auto& events = server_.generate.responses;
  events = GenerateScript({"a", "b"});
  Merge(R"(started { fingerprint: "f00d" effective { num_sequences: 2 seed: 18446744073709551615
                                                     temperature: 0.1 } })",
        events[0]);
  Merge("tokens { output_index: 1 position: 3 }", events[2]);
  Merge("finished { reason: FINISH_REASON_EOS eos_token_id: 2 completion_tokens: 2 }", events[3]);
  events.insert(events.end() - 1, Proto<v1::GenerateResponse>(R"(
      finished { output_index: 1 reason: FINISH_REASON_LENGTH completion_tokens: 1 })"));
  const std::string path = FileWith("");
  for (const bool json : {false, true}) {
    ASSERT_EQ(Run("generate Once --save=" + path + " --stop=x --num_sequences=2" +
                  (json ? " --json" : "")),
              kSuccess)
        << err_.str();
    EXPECT_TRUE(server_.last_generate().output().token_ids());
    if (!json) {
      EXPECT_EQ(out_.str(), "[0]\na\n[1]\nb\n");
    }
    const size_t before = server_.verify_requests().size();
    Answer({kEnds, kGoesOn, kEnds, kGoesOn});
    ASSERT_EQ(Run("verify --from=" + path), kSuccess) << err_.str();
    EXPECT_EQ(out_.str(),
              "[0] verified: 2 tokens, the end: EOS\n[1] verified: 1 tokens, the output goes on\n");
    const std::vector<v1::VerifyRequest> claims = server_.verify_requests();
    ASSERT_EQ(claims.size(), before + 2);
    EXPECT_THAT(claims[before], HasFields(R"(
        claimed_token_ids: [100, 2] fingerprint: "f00d"
        request { prompt: "Once" stopping { stop_strings: "x" }
                  sampling { seed: 18446744073709551615 temperature: 0.1 } })"));
    EXPECT_THAT(claims[before + 1], HasFields("claimed_token_ids: 101 output_index: 1"));
  }
}

TEST_F(VerifyTest, OneMismatchOfSeveralIsAFailure) {
  Answer({"mismatch { position: 5 claimed_token_id: 11 token_id: 1 }", kGoesOn});
  const std::string claim = R"({"request": {"prompt": "p"}, "claimed_token_ids": [11]})";
  EXPECT_EQ(Run("verify " + From(claim + "\n\n" + claim + "\n")), kFailure);
  EXPECT_EQ(out_.str(),
            "[0] mismatch at token 0 (position 5): claimed 11, the server has 1\n"
            "[1] verified: 1 tokens, the output goes on\n");
}

TEST_F(VerifyTest, AFileThatCannotBeWrittenIsAnError) {
  server_.generate.responses = GenerateScript({"a"});
  EXPECT_EQ(Run("generate p --save=/nonexistent/run.json"), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("/nonexistent/run.json: cannot be written"));
}

TEST_F(VerifyTest, RefusesWrongUsage) {
  const std::string good = From("{}\n");
  ExpectUsageErrors("verify",
                    {"", "p", "--ids=1", "p --ids=1;2", "p --ids=1 --speculation=on", "p " + good,
                     good + " --ids=1", good + " --seed=1", good + " --regex=a",
                     good + " --fingerprint=f", "--from=/nonexistent"});
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"}, {"{}\n{\"claims\": 1}\n", "line 2: "}, {"{", "line 1: "}}) {
    ExpectUsageError(Run("verify " + From(text)), "verify: ", message);
  }
}

}  // namespace
}  // namespace tlm::cli
