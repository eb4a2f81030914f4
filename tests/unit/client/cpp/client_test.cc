#include "client/cpp/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/cpp/status.h"
#include "tests/support/proto.h"
#include "tests/unit/client/fake_server.h"

namespace tlm::client {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

class ClientTest : public testing::Test {
 protected:
  void SetUp() override { client_ = Connect({}); }

  std::unique_ptr<Client> Connect(const ClientOptions& options) {
    auto client = Client::Connect(server_.target(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  FakeServer server_;
  std::unique_ptr<Client> client_;
};

v1::GenerateRequest Prompt(const std::string& text) {
  v1::GenerateRequest request;
  request.set_prompt(text);
  return request;
}

TEST_F(ClientTest, StreamsEventsInOrder) {
  server_.generate.responses = GenerateScript({"Once", " upon"});
  std::vector<v1::GenerateResponse::EventCase> events;
  std::string text;
  const absl::Status status = client_->Generate(Prompt("p"), [&](const auto& event) {
    events.push_back(event.event_case());
    text += event.tokens().text();
  });
  EXPECT_TRUE(status.ok()) << status;
  using Event = v1::GenerateResponse;
  EXPECT_THAT(events, ElementsAre(Event::kStarted, Event::kTokens, Event::kTokens, Event::kFinished,
                                  Event::kSummary));
  EXPECT_EQ(text, "Once upon");
  EXPECT_EQ(server_.last_generate().prompt(), "p");
}

TEST_F(ClientTest, CollectsWholeAnswer) {
  server_.generate.responses = GenerateScript({"Once", " upon"});
  const auto result = client_->Generate(Prompt("p"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outputs.at(0).text, "Once upon");
  EXPECT_EQ(result->started.request_id(), "r1");
}

TEST_F(ClientTest, ReportsStreamCutShortByServer) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.responses.pop_back();
  EXPECT_EQ(client_->Generate(Prompt("p")).status().code(), absl::StatusCode::kInternal);
}

// status_test.cc tells which details there are.
TEST_F(ClientTest, ReturnsStatusWithDetails) {
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  server_.generate.status =
      StatusWithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", {}, info, {});
  const absl::Status status = client_->Generate(Prompt("p"), [](const auto&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "full");
  EXPECT_EQ(DetailsOf(status).reason, "QUEUE_FULL");
}

TEST_F(ClientTest, CancelsFromAnotherThread) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.hold = true;
  CancelToken token;
  std::thread canceller([&] {
    server_.WaitForHold();
    token.Cancel();
  });
  CallOptions options;
  options.cancel = &token;
  const absl::Status status = client_->Generate(
      Prompt("p"), [](const auto&) {}, options);
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  server_.WaitForCancellation();
}

TEST_F(ClientTest, StartsNoCallWithCancelledToken) {
  server_.tokenize.responses.resize(1);
  CancelToken token;
  token.Cancel();
  CallOptions options;
  options.cancel = &token;
  EXPECT_EQ(client_->Tokenize({}, options).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, CancelsStreamThatIsDroppedEarly) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.hold = true;
  {
    const auto stream = client_->StartGenerate(Prompt("p"));
    v1::GenerateResponse event;
    ASSERT_TRUE(stream->Read(&event));
  }
  server_.WaitForCancellation();
}

TEST_F(ClientTest, EndsAtDeadline) {
  server_.generate.hold = true;
  CallOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(client_->Generate(Prompt("p"), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, SpreadsCallsOverTargetsAndPassesOverThoseThatAreGone) {
  FakeServer other;
  server_.tokenize.responses = {Proto<v1::TokenizeResponse>("token_ids: 1")};
  other.tokenize.responses = {Proto<v1::TokenizeResponse>("token_ids: 2")};
  const auto client = *Client::Connect({"127.0.0.1:1", server_.target(), other.target()});
  std::vector<uint32_t> answers;
  for (int i = 0; i < 4; ++i) {
    const auto response = client->Tokenize({});
    ASSERT_TRUE(response.ok()) << response.status();
    answers.push_back(response->token_ids(0));
  }
  EXPECT_THAT(answers, ElementsAre(1, 2, 1, 2));
  CallOptions options;
  options.timeout = absl::Seconds(30);
  EXPECT_TRUE(client->WaitUntilServing("", options).ok());
}

TEST_F(ClientTest, TakesTargetsInBraces) {
  EXPECT_THAT((*Client::Connect({"a:1", "b:1"}))->targets(), ElementsAre("a:1", "b:1"));
  EXPECT_THAT((*Client::Connect("a:1"))->targets(), ElementsAre("a:1"));
}

TEST_F(ClientTest, CollectsForwardRows) {
  server_.forward.responses = ForwardScript(2);
  const auto result = client_->Forward({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->rows, ElementsAre(RowIndex{0, 0}, RowIndex{0, 1}));
  EXPECT_THAT(result->Row(1), ElementsAre(10, 11, 12));
}

TEST_F(ClientTest, SendsApiKeyAndMetadata) {
  server_.model_info.responses = {Proto<v1::ModelInfoResponse>("identity { model_id: 'demo' }")};
  ClientOptions client_options;
  client_options.api_key = "secret";
  CallOptions options;
  options.metadata = {{"traceparent", "00-1-2-01"}};
  const auto info = Connect(client_options)->ModelInfo({}, options);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->identity().model_id(), "demo");
  EXPECT_THAT(server_.last_metadata(), Contains(Pair("authorization", "Bearer secret")));
  EXPECT_THAT(server_.last_metadata(), Contains(Pair("traceparent", "00-1-2-01")));
}

TEST_F(ClientTest, ScoresContinuations) {
  constexpr char kTwo[] = "prompt: 'p' continuations { text: 'a' } continuations { text: 'b' }";
  server_.score.responses = {
      Proto<v1::ScoreResponse>("scores { sum_logprob: -2.5 } scores { is_greedy: true }")};
  const auto response = client_->Score(Proto<v1::ScoreRequest>(kTwo));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->scores(0).sum_logprob(), -2.5);
  EXPECT_TRUE(response->scores(1).is_greedy());
  EXPECT_THAT(server_.last_score(), IsProto(kTwo));
  server_.score.responses[0].mutable_scores()->RemoveLast();
  EXPECT_EQ(client_->Score(Proto<v1::ScoreRequest>(kTwo)).status().code(),
            absl::StatusCode::kInternal)
      << "a score is missing";
  server_.score.status = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "an older server");
  EXPECT_EQ(client_->Score(Proto<v1::ScoreRequest>(kTwo)).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(ClientTest, VerifiesWhatWasGenerated) {
  auto& events = server_.generate.responses;
  events = GenerateScript({"a", "b"});
  Merge("started { effective { seed: 7 } fingerprint: 'f00d' }", events[0]);
  Merge("finished { reason: FINISH_REASON_STOP stop_token_id: 9 completion_tokens: 3 }", events[3]);
  const auto request = Proto<v1::GenerateRequest>("prompt: 'p' output { token_ids: true }");
  const auto result = client_->Generate(request);
  ASSERT_TRUE(result.ok()) << result.status();
  server_.verify.responses = {Proto<v1::VerifyResponse>("verified_token_count: 3")};
  const auto response = client_->Verify(ClaimOf(request, *result, 0));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->verified_token_count(), 3u);
  EXPECT_THAT(server_.verify_requests()[0],
              HasFields("request { prompt: 'p' sampling { seed: 7 } } fingerprint: 'f00d' "
                        "claimed_token_ids: [100, 101, 9]"));
}

TEST_F(ClientTest, TellsHealth) {
  EXPECT_EQ(*client_->Health(), grpc::health::v1::HealthCheckResponse::SERVING);
  server_.SetServing(false);
  EXPECT_EQ(*client_->Health(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(client_->Health("no.such.Service").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClientTest, WaitsUntilServing) {
  server_.SetServing(false);
  absl::Status status;
  std::thread waiter([&] {
    CallOptions options;
    options.timeout = absl::Seconds(30);
    status = client_->WaitUntilServing("", options);
  });
  server_.SetServing(true);
  waiter.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ClientTest, StopsWaitingAtDeadline) {
  server_.SetServing(false);
  CallOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(client_->WaitUntilServing("", options).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientWithoutServerTest, NeedsATarget) {
  EXPECT_EQ(Client::Connect(std::vector<std::string>()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ClientWithoutServerTest, IsUnavailable) {
  // Port 1 of the loopback: no listener.
  const auto client = Client::Connect("127.0.0.1:1");
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->Tokenize({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClientWithoutServerTest, WaitCanBeCancelled) {
  const auto client = Client::Connect("127.0.0.1:1");
  ASSERT_TRUE(client.ok());
  CancelToken token;
  token.Cancel();
  CallOptions options;
  options.cancel = &token;
  EXPECT_EQ((*client)->WaitUntilServing("", options).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tlm::client
