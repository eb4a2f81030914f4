// `tlm bench` against a server in this process.
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "client/cli/bench_report.h"
#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class BenchTest : public CommandFixture {
 protected:
  BenchTest() {
    server_.model_info.responses = {Proto<v1::ModelInfoResponse>(
        "identity { model_id: 'demo' } architecture { vocab_size: 500 }")};
    server_.generate.responses = GenerateScript({"a", "b", "c"});
    Merge("started { prompt_token_count: 7 queue_time { nanos: 20000000 } }",
          server_.generate.responses[0]);
  }

  nlohmann::json RunForJson(const Line& flags, int code = kSuccess) {
    EXPECT_EQ(Run(Line("bench --json") + flags), code) << err_.str();
    return nlohmann::json::parse(out_.str());
  }
};

TEST_F(BenchTest, MeasuresAsManyRequestsAsAsked) {
  const auto json = RunForJson("--requests=10 --concurrency=3");
  EXPECT_EQ(server_.generate_requests().size(), 10u);
  EXPECT_EQ(json["requests"]["sent"], 10);
  EXPECT_EQ(json["requests"]["ok"], 10);
  EXPECT_EQ(json["requests"]["failed"], 0);
  EXPECT_EQ(json["tokens"]["prompt"], 70);
  EXPECT_EQ(json["tokens"]["output"], 30);
  const double seconds = json["seconds"];
  EXPECT_NEAR(json["tokens"]["output_per_second"], 30 / seconds, 1e-6);
  const auto& latency = json["latency_seconds"];
  EXPECT_EQ(latency["time_to_first_token"]["count"], 10);
  EXPECT_EQ(latency["inter_token"]["count"], 20);
  EXPECT_EQ(latency["end_to_end"]["count"], 10);
  EXPECT_DOUBLE_EQ(latency["queue"]["p99"], 0.02);
  EXPECT_LE(latency["time_to_first_token"]["max"], latency["end_to_end"]["max"]);
}

TEST_F(BenchTest, SendsWhatTheFlagsSay) {
  RunForJson("--requests=4 --prompt_tokens=5 --max_new_tokens=9 --temperature=0.5 --seed=11");
  std::set<std::string> prompts;
  for (const v1::GenerateRequest& request : server_.generate_requests()) {
    EXPECT_EQ(request.prompt_token_ids().ids_size(), 5);
    EXPECT_THAT(request, HasFields("stopping { max_new_tokens: 9 ignore_eos: true } "
                                   "sampling { temperature: 0.5 }"));
    prompts.insert(request.prompt_token_ids().SerializeAsString());
  }
  EXPECT_EQ(prompts.size(), 4u);
}

TEST_F(BenchTest, OffersAPoissonProcessOfTheRate) {
  const auto json = RunForJson("--requests=40 --rate=400");
  EXPECT_EQ(json["requests"]["ok"], 40);
  EXPECT_EQ(json["load"]["loop"], "open");
  // 40 arrivals take 0.1 s on average; no seed makes ten times of it.
  EXPECT_GT(json["seconds"], 0.02);
}

TEST_F(BenchTest, CountsFailuresByCodeAndReason) {
  std::atomic<int> calls = 0;
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  const auto refused =
      StatusWithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", {}, info, {});
  server_.answer_generate = [&](const v1::GenerateRequest&) {
    Script<v1::GenerateResponse> script = server_.generate;
    const int call = calls++;
    if (call % 4 == 1) script = {{}, refused};
    if (call == 2) script.status = grpc::Status(grpc::StatusCode::DATA_LOSS, "lost");
    return script;
  };
  const auto json = RunForJson("--requests=8 --concurrency=1");
  EXPECT_EQ(json["requests"]["ok"], 5);
  EXPECT_EQ(json["requests"]["failed"], 3);
  EXPECT_EQ(json["failures"][0]["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(json["failures"][0]["reason"], "QUEUE_FULL");
  EXPECT_EQ(json["failures"][0]["count"], 2);
  EXPECT_EQ(json["failures"][1]["code"], "DATA_LOSS");
  EXPECT_EQ(json["latency_seconds"]["end_to_end"]["count"], 5);
}

TEST_F(BenchTest, FailsWhenNoRequestEndsWell) {
  server_.generate = {{}, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no")};
  const auto json = RunForJson("--requests=2", kFailure);
  EXPECT_EQ(json["requests"]["failed"], 2);
  EXPECT_TRUE(json["latency_seconds"]["end_to_end"].is_null());
}

TEST_F(BenchTest, EndsAfterTheDurationAndWaitsForWhatRuns) {
  const auto json = RunForJson("--duration=0.2 --warmup=0.1 --concurrency=2");
  EXPECT_DOUBLE_EQ(json["seconds"], 0.2);
  EXPECT_EQ(json["requests"]["sent"], json["requests"]["ok"]);
  // Those of the warm-up were sent, not counted.
  EXPECT_LT(json["requests"]["sent"], server_.generate_requests().size());
}

TEST_F(BenchTest, KeepsToTheConcurrencyOfAnOpenLoop) {
  server_.generate.responses.resize(1);
  server_.generate.hold = true;
  const auto json = RunForJson("--requests=20 --rate=1000 --concurrency=3 --timeout=0.5", kFailure);
  EXPECT_EQ(json["requests"]["sent"], 3);
  EXPECT_EQ(json["requests"]["not_sent"], 17);
  EXPECT_EQ(json["failures"][0]["code"], "DEADLINE_EXCEEDED");
}

TEST_F(BenchTest, SpreadsRequestsOverTargetsAndConnections) {
  FakeServer other;
  other.generate = server_.generate;
  target_flag_ += "," + other.target();
  RunForJson("--requests=8 --connections=2");
  EXPECT_EQ(server_.generate_requests().size(), 4u);
  EXPECT_EQ(other.generate_requests().size(), 4u);
}

TEST_F(BenchTest, PrintsTables) {
  EXPECT_EQ(Run("bench --requests=3"), kSuccess) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("model            demo\n"),
                                HasSubstr("requests         3 ok, 0 failed\n"), HasSubstr("TTFT"),
                                HasSubstr("p99"), HasSubstr("20.0 ms")));
  EXPECT_EQ(err_.str(), "");
}

TEST_F(BenchTest, RefusesWrongUsageNamingTheLimit) {
  for (const auto& [flag, limit] : std::vector<std::pair<std::string, std::string>>{
           {"--concurrency=0", "[1, 4096]"},
           {"--concurrency=4097", "4097, the range is [1, 4096]"},
           {"--connections=65", "[1, 64]"},
           {"--rate=0", "(0, 100000]"},
           {"--rate=nan", "(0, 100000]"},
           {"--requests=0", "[1, "},
           {"--duration=0", "--duration is 0, it must be more than 0"},
           {"--duration=0s", "--duration is 0, it must be more than 0"},
           {"--prompt_tokens=0", "--prompt_tokens is 0, the range is [1, "},
           {"--warmup=inf", "must end"},
           {"--max_new_tokens=0", "[1, "}}) {
    ExpectUsageError(Run("bench " + flag), "bench: ", limit);
  }
  ExpectUsageErrors("bench", {"--duration=0 --requests=1", "--prompt_tokens=3 --prompts_file=x",
                              "--prompt_tokens=0 --prompts_file=x", "x"});
}

TEST_F(BenchTest, ReportsAServerThatIsNotThere) {
  EXPECT_EQ(RunWithoutTarget("bench --target=127.0.0.1:1"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: bench: UNAVAILABLE: "));
  EXPECT_EQ(out_.str(), "");
}

TEST(BenchResultTest, TellsNotMoreThanSoManyKindsOfFailuresApart) {
  BenchResult result;
  for (int i = 0; i < 1000; ++i) result.AddFailure("INTERNAL", std::to_string(i));
  result.AddFailure("INTERNAL", "0");
  EXPECT_EQ(result.failed, 1001u);
  EXPECT_EQ(result.failures.size(), BenchResult::kMaxKinds + 1);
  EXPECT_EQ((result.failures[{"INTERNAL", "0"}]), 2u);
  EXPECT_EQ((result.failures[{"OTHER", ""}]), 1000 - BenchResult::kMaxKinds);
}

}  // namespace
}  // namespace tlm::cli
