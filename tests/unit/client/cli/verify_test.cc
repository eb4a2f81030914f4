#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class VerifyTest : public CommandFixture {
 protected:
  void Answer(const v1::VerifyResponse& response) { server_.verify.responses = {response}; }
  static v1::VerifyResponse Verified(uint32_t tokens, v1::FinishReason reason = {}) {
    v1::VerifyResponse response;
    response.set_verified(true);
    response.set_verified_token_count(tokens);
    response.set_finish_reason(reason);
    return response;
  }
  static v1::VerifyResponse Mismatch(uint32_t index) {
    v1::VerifyResponse response;
    response.set_verified_token_count(index);
    response.mutable_mismatch()->set_index(index);
    response.mutable_mismatch()->set_position(index + 5);
    response.mutable_mismatch()->set_claimed_token_id(11);
    return response;
  }
  static std::string PathOf(const std::string& name) {
    return testing::TempDir() + "/verify_test_" + name;
  }
  static std::string FileWith(const std::string& text) {
    const std::string path = PathOf("file");
    std::ofstream(path) << text;
    return "--from=" + path;
  }
};

TEST_F(VerifyTest, TakesPromptTokensAndRequestFromFlags) {
  Answer(Verified(3));
  EXPECT_EQ(Run({"verify", "Once", "--ids=11,12,13", "--seed=7", "--temperature=0.5",
                 "--max_new_tokens=9", "--regex=a*", "--num_sequences=2", "--output_index=1",
                 "--fingerprint=f00d", "--request_id=mine"}),
            kSuccess)
      << err_.str();
  EXPECT_EQ(out_.str(), "verified: 3 tokens, the output goes on\n");
  ASSERT_EQ(server_.verify_requests().size(), 1u);
  const v1::VerifyRequest request = server_.verify_requests()[0];
  EXPECT_THAT(request.claimed_token_ids(), ElementsAre(11, 12, 13));
  EXPECT_EQ(request.request_id(), "mine");
  EXPECT_EQ(request.output_index(), 1u);
  EXPECT_EQ(request.fingerprint(), "f00d");
  EXPECT_EQ(request.request().prompt(), "Once");
  EXPECT_EQ(request.request().sampling().seed(), 7u);
  EXPECT_EQ(request.request().sampling().num_sequences(), 2u);
  EXPECT_EQ(request.request().stopping().max_new_tokens(), 9u);
  EXPECT_EQ(request.request().regex(), "a*");
  EXPECT_EQ(request.request().request_id(), "");
}

TEST_F(VerifyTest, TellsTheEnd) {
  Answer(Verified(2, v1::FINISH_REASON_EOS));
  EXPECT_EQ(Run({"verify", "p", "--ids=1,2"}), kSuccess);
  EXPECT_EQ(out_.str(), "verified: 2 tokens, the end: EOS\n");
}

TEST_F(VerifyTest, AMismatchIsAFailure) {
  v1::VerifyResponse other = Mismatch(2);
  other.mutable_mismatch()->set_token_id(290);
  Answer(other);
  EXPECT_EQ(Run({"verify", "p", "--ids=1,2,11"}), kFailure);
  EXPECT_EQ(out_.str(), "mismatch at token 2 (position 7): claimed 11, the server has 290\n");
  EXPECT_EQ(err_.str(), "");
  v1::VerifyResponse ended = Mismatch(2);
  ended.mutable_mismatch()->set_finished(v1::FINISH_REASON_STOP);
  Answer(ended);
  EXPECT_EQ(Run({"verify", "p", "--ids=1,2,11"}), kFailure);
  EXPECT_EQ(out_.str(),
            "mismatch at token 2 (position 7): claimed 11, but the output had ended: STOP\n");
  EXPECT_EQ(Run({"verify", "p", "--ids=1,2,11", "--json"}), kFailure);
  EXPECT_THAT(out_.str(), HasSubstr("\"finished\":\"FINISH_REASON_STOP\""));
}

// What `tlm generate --save` writes is what Verify takes.
TEST_F(VerifyTest, TakesWhatGenerateSaved) {
  auto& events = server_.generate.responses;
  events = GenerateScript({"a", "b"});
  events[0].mutable_started()->mutable_effective()->set_num_sequences(2);
  events[0].mutable_started()->mutable_effective()->set_seed(18446744073709551615u);
  events[0].mutable_started()->mutable_effective()->set_temperature(0.1f);
  events[0].mutable_started()->set_fingerprint("f00d");
  events[2].mutable_tokens()->set_output_index(1);
  events[2].mutable_tokens()->set_position(3);
  v1::GenerateFinished& first = *events[3].mutable_finished();
  first.set_reason(v1::FINISH_REASON_EOS);
  first.set_eos_token_id(2);
  first.set_completion_tokens(2);
  v1::GenerateResponse second;
  second.mutable_finished()->set_output_index(1);
  second.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  second.mutable_finished()->set_completion_tokens(1);
  events.insert(events.end() - 1, second);
  const std::string path = PathOf("saved");
  for (const bool json : {false, true}) {
    std::vector<std::string> args = {"generate", "Once", "--save=" + path, "--stop=x",
                                     "--num_sequences=2"};
    if (json) args.push_back("--json");
    ASSERT_EQ(Run(args), kSuccess) << err_.str();
    EXPECT_TRUE(server_.last_generate().output().token_ids());
    if (!json) {
      EXPECT_EQ(out_.str(), "[0]\na\n[1]\nb\n");
    }
    server_.verify.responses = {Verified(2, v1::FINISH_REASON_EOS), Verified(1)};
    const size_t before = server_.verify_requests().size();
    server_.verify.responses.insert(server_.verify.responses.begin(), before, v1::VerifyResponse());
    ASSERT_EQ(Run({"verify", "--from=" + path}), kSuccess) << err_.str();
    EXPECT_EQ(out_.str(),
              "[0] verified: 2 tokens, the end: EOS\n[1] verified: 1 tokens, the output goes on\n");
    const std::vector<v1::VerifyRequest> claims = server_.verify_requests();
    ASSERT_EQ(claims.size(), before + 2);
    const v1::VerifyRequest& claim = claims[before];
    EXPECT_THAT(claim.claimed_token_ids(), ElementsAre(100, 2));
    EXPECT_EQ(claim.fingerprint(), "f00d");
    EXPECT_EQ(claim.request().prompt(), "Once");
    EXPECT_EQ(claim.request().sampling().seed(), 18446744073709551615u);
    EXPECT_EQ(claim.request().sampling().temperature(), 0.1f);
    EXPECT_THAT(claim.request().stopping().stop_strings(), ElementsAre("x"));
    EXPECT_THAT(claims[before + 1].claimed_token_ids(), ElementsAre(101));
    EXPECT_EQ(claims[before + 1].output_index(), 1u);
  }
}

TEST_F(VerifyTest, OneMismatchOfSeveralIsAFailure) {
  v1::VerifyResponse other = Mismatch(0);
  other.mutable_mismatch()->set_token_id(1);
  server_.verify.responses = {other, Verified(1)};
  const std::string claim = R"({"request": {"prompt": "p"}, "claimed_token_ids": [11]})";
  EXPECT_EQ(Run({"verify", FileWith(claim + "\n\n" + claim + "\n")}), kFailure);
  EXPECT_EQ(out_.str(),
            "[0] mismatch at token 0 (position 5): claimed 11, the server has 1\n"
            "[1] verified: 1 tokens, the output goes on\n");
}

TEST_F(VerifyTest, ReportsServerErrors) {
  server_.verify.status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "fingerprint: stale");
  EXPECT_EQ(Run({"verify", "p", "--ids=1"}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: verify: FAILED_PRECONDITION: fingerprint: stale\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(VerifyTest, AFileThatCannotBeWrittenIsAnError) {
  server_.generate.responses = GenerateScript({"a"});
  EXPECT_EQ(Run({"generate", "p", "--save=/nonexistent/run.json"}), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("/nonexistent/run.json: cannot be written"));
}

TEST_F(VerifyTest, RefusesWrongUsage) {
  const std::string good = FileWith("{}\n");
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"verify"},
                                             {"verify", "p"},
                                             {"verify", "--ids=1"},
                                             {"verify", "p", "--ids=1;2"},
                                             {"verify", "p", "--ids=1", "--speculation=on"},
                                             {"verify", "p", good},
                                             {"verify", good, "--ids=1"},
                                             {"verify", good, "--seed=1"},
                                             {"verify", good, "--regex=a"},
                                             {"verify", good, "--fingerprint=f"},
                                             {"verify", "--from=/nonexistent"}}) {
    EXPECT_EQ(Run(args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: verify: "));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"}, {"{}\n{\"claims\": 1}\n", "line 2: "}, {"{", "line 1: "}}) {
    EXPECT_EQ(Run({"verify", FileWith(text)}), kUsageError);
    EXPECT_THAT(err_.str(), HasSubstr(message));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
}

}  // namespace
}  // namespace tlm::cli
