// Generate over replicas in this process that die at chosen points.
#include "client/cpp/generate_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/cpp/client.h"
#include "client/cpp/status.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/scripted_replica.h"

namespace tlm::client {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

using GenerateScriptType = Script<v1::GenerateResponse>;

grpc::Status Refusal(grpc::StatusCode code, const std::string& reason,
                     absl::Duration retry_delay = absl::ZeroDuration()) {
  google::rpc::ErrorInfo info;
  info.set_domain("tlm");
  info.set_reason(reason);
  google::rpc::RetryInfo retry;
  if (retry_delay > absl::ZeroDuration()) {
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(retry_delay)));
  }
  return StatusWithDetails(code, reason, {}, info, retry);
}

const grpc::Status kLost(grpc::StatusCode::UNAVAILABLE, "Socket closed");

class GenerateStreamTest : public testing::Test {
 protected:
  // Replicas that answer as ScriptedAnswer, and a client of all of them.
  void Serve(int replicas) {
    std::vector<std::string> targets;
    for (int i = 0; i < replicas; ++i) {
      servers_.push_back(std::make_unique<FakeServer>());
      servers_[i]->answer_generate = [this](const auto& request) { return Whole(request); };
      targets.push_back(servers_[i]->target());
    }
    client_ = *Client::Connect(targets);
    options_.resume.initial_backoff = absl::Milliseconds(1);
    options_.resume.timeout = absl::Seconds(20);
  }

  GenerateScriptType Whole(const v1::GenerateRequest& request) {
    std::lock_guard<std::mutex> lock(mutex_);
    return {ScriptedAnswer(request, &random_), grpc::Status::OK};
  }
  // The whole answer's first events, then this status.
  GenerateScriptType Cut(const v1::GenerateRequest& request, size_t events,
                         const grpc::Status& status) {
    GenerateScriptType script = Whole(request);
    script.responses.resize(std::min(events, script.responses.size()));
    script.status = status;
    return script;
  }
  // What a replica answers to a call.
  using Answer = std::function<GenerateScriptType(const v1::GenerateRequest&)>;
  Answer Ending(size_t events, const grpc::Status& status) {
    return [=, this](const auto& request) { return Cut(request, events, status); };
  }
  // The replica's i-th call is answered with the i-th script, later ones as `then` does.
  void SetAnswers(size_t replica, std::vector<Answer> answers, Answer then) {
    servers_[replica]->answer_generate = [=, this](const auto& request) {
      // The request was remembered before.
      const size_t call = servers_[replica]->generate_requests().size() - 1;
      return call < answers.size() ? answers[call](request) : then(request);
    };
  }
  // Later ones as a healthy replica does.
  void SetAnswers(size_t replica, std::vector<Answer> answers) {
    SetAnswers(replica, std::move(answers), [this](const auto& request) { return Whole(request); });
  }
  void EndWith(size_t replica, size_t events, const grpc::Status& status) {
    SetAnswers(replica, {Ending(events, status)});
  }
  void AlwaysEndWith(size_t replica, size_t events, const grpc::Status& status) {
    servers_[replica]->answer_generate = Ending(events, status);
  }

  static v1::GenerateRequest Request(uint64_t seed = 1) {
    v1::GenerateRequest request;
    request.set_prompt("p");
    request.mutable_sampling()->set_seed(seed);
    request.mutable_stopping()->set_max_new_tokens(20);
    return request;
  }
  std::string Text(const v1::GenerateRequest& request) {
    std::string text;
    for (const auto& event : Whole(request).responses) text += event.tokens().text();
    return text;
  }
  std::string ReadAll(GenerateStream* stream) {
    std::string text;
    v1::GenerateResponse event;
    while (stream->Read(&event)) text += event.tokens().text();
    return text;
  }
  absl::Status StatusOf(const v1::GenerateRequest& request) {
    return client_->Generate(
        request, [](const auto&) {}, options_);
  }
  size_t Calls(size_t replica) { return servers_[replica]->generate_requests().size(); }

  std::mutex mutex_;
  std::mt19937 random_{1};  // guarded by mutex_
  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::unique_ptr<Client> client_;
  CallOptions options_;
};

TEST_F(GenerateStreamTest, ContinuesOnAnotherReplicaWhateverGrpcCallsTheLoss) {
  Serve(2);
  for (const grpc::Status& status :
       {kLost, Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", absl::Seconds(1)),
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "recvmsg:Connection reset by peer"),
        grpc::Status(grpc::StatusCode::CANCELLED, ""),
        grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed"),
        grpc::Status(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2")}) {
    AlwaysEndWith(0, 3, status);
    AlwaysEndWith(1, 100, grpc::Status::OK);
    const size_t calls = Calls(1);
    for (int i = 0; i < 2; ++i) {  // round robin: one of the two begins on replica 0
      const auto stream = client_->StartGenerate(Request(), options_);
      EXPECT_EQ(ReadAll(stream.get()), Text(Request()));
      EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
    }
    EXPECT_EQ(Calls(1), calls + 2) << status.error_message();
  }
  bool resumed = false;
  for (const v1::GenerateRequest& request : servers_[1]->generate_requests()) {
    resumed = resumed || request.resume().fingerprint() == kScriptedFingerprint;
  }
  EXPECT_TRUE(resumed);
}

TEST_F(GenerateStreamTest, NeverContinuesAfterAnAnswer) {
  Serve(2);
  options_.timeout = absl::Seconds(30);
  using grpc::StatusCode;
  for (const grpc::Status& status :
       {grpc::Status(StatusCode::INVALID_ARGUMENT, "x"), grpc::Status(StatusCode::DATA_LOSS, "x"),
        grpc::Status(StatusCode::ABORTED, "x"), grpc::Status(StatusCode::DEADLINE_EXCEEDED, "x"),
        grpc::Status(StatusCode::NOT_FOUND, "x"), grpc::Status(StatusCode::UNIMPLEMENTED, "x"),
        grpc::Status(StatusCode::UNAUTHENTICATED, "x"), grpc::Status(StatusCode::UNKNOWN, "x"),
        grpc::Status(StatusCode::PERMISSION_DENIED, "x"), grpc::Status(StatusCode::INTERNAL, "x"),
        grpc::Status(StatusCode::RESOURCE_EXHAUSTED, "message larger than max"),
        Refusal(StatusCode::INTERNAL, "RST_STREAM"), grpc::Status(StatusCode::OUT_OF_RANGE, "x"),
        grpc::Status(StatusCode::FAILED_PRECONDITION, "x")}) {
    for (const size_t events : {0, 3}) {
      AlwaysEndWith(0, events, status);
      AlwaysEndWith(1, events, status);
      const size_t calls = Calls(0) + Calls(1);
      EXPECT_EQ(StatusOf(Request()).code(), static_cast<absl::StatusCode>(status.error_code()));
      EXPECT_EQ(Calls(0) + Calls(1), calls + 1) << status.error_code() << " after " << events;
    }
  }
}

// Every stream is cut at random, many of them several times.
TEST_F(GenerateStreamTest, ManyStreamsOverDyingReplicasAreWhatTheyAreUndisturbed) {
  Serve(3);
  std::atomic<int> cuts{0};
  for (const auto& server : servers_) {
    server->answer_generate = [&](const auto& request) {
      GenerateScriptType script = Whole(request);
      std::lock_guard<std::mutex> lock(mutex_);
      if (random_() % 2 == 0) return script;
      script.responses.resize(random_() % script.responses.size());
      script.status = kLost;
      ++cuts;
      return script;
    };
  }
  options_.resume.max_resumes = 1000;
  options_.wait_for_ready = true;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([this, seed] {
      for (uint64_t i = 0; i < 25; ++i) {
        v1::GenerateRequest request = Request(100 * seed + i);
        request.mutable_sampling()->set_num_sequences(1 + i % 3);
        const auto result = client_->Generate(request, options_);
        ASSERT_TRUE(result.ok()) << result.status();
        GenerateCollector undisturbed;
        for (const auto& event : Whole(request).responses) ASSERT_TRUE(undisturbed.Add(event).ok());
        for (size_t output = 0; output < result->outputs.size(); ++output) {
          EXPECT_EQ(result->outputs[output].text, undisturbed.result().outputs[output].text);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cuts, 100);
}

TEST_F(GenerateStreamTest, ContinuesOnTheOnlyReplicaWhenItIsBack) {
  Serve(1);
  SetAnswers(0, {Ending(3, kLost), Ending(0, kLost)});
  const auto stream = client_->StartGenerate(Request(), options_);
  EXPECT_EQ(ReadAll(stream.get()), Text(Request()));
  EXPECT_EQ(stream->resumes(), 1);
  EXPECT_EQ(Calls(0), 3u);
}

TEST_F(GenerateStreamTest, SurvivesTheEndOfAServer) {
  Serve(2);
  servers_[0]->answer_generate = [this](const auto& request) {
    GenerateScriptType script = Cut(request, 3, grpc::Status::OK);
    script.hold = true;
    return script;
  };
  const auto stream = client_->StartGenerate(Request(), options_);
  servers_[0]->WaitForHold();
  servers_[0].reset();
  EXPECT_EQ(ReadAll(stream.get()), Text(Request()));
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(stream->resumes(), 1);
  EXPECT_EQ(stream->target(), 1u);
}

TEST_F(GenerateStreamTest, RefusedAtFirstTriesEveryTargetOnce) {
  Serve(3);
  EndWith(0, 0, Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", absl::Seconds(1)));
  EndWith(1, 0, Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", absl::Seconds(1)));
  const auto stream = client_->StartGenerate(Request(), options_);
  EXPECT_EQ(ReadAll(stream.get()), Text(Request()));
  EXPECT_EQ(stream->resumes(), 0);
  EXPECT_EQ(stream->target(), 2u);
}

TEST_F(GenerateStreamTest, ReturnsTheRefusalWithoutARetryTime) {
  Serve(2);
  AlwaysEndWith(0, 0, kLost);
  AlwaysEndWith(1, 0, kLost);
  EXPECT_EQ(StatusOf(Request()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Calls(0), 1u);
  EXPECT_EQ(Calls(1), 1u);
}

TEST_F(GenerateStreamTest, WaitsAsLongAsAllRefusalsAsk) {
  Serve(2);
  EndWith(0, 0, Refusal(grpc::StatusCode::UNAVAILABLE, "STARTING", absl::Milliseconds(30)));
  EndWith(1, 0, Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", absl::Milliseconds(80)));
  const absl::Time start = absl::Now();
  EXPECT_TRUE(StatusOf(Request()).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(30));
  EXPECT_EQ(Calls(0) + Calls(1), 3u);
}

TEST_F(GenerateStreamTest, DoesNotWaitForWhatComesTooLate) {
  Serve(1);
  AlwaysEndWith(0, 0, Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", absl::Milliseconds(900)));
  options_.timeout = absl::Milliseconds(500);
  EXPECT_EQ(StatusOf(Request()).code(), absl::StatusCode::kUnavailable);
  options_.timeout = absl::InfiniteDuration();
  options_.resume.timeout = absl::Milliseconds(500);
  EXPECT_EQ(StatusOf(Request()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Calls(0), 2u);
}

TEST_F(GenerateStreamTest, ReturnsOverloadWhenNothingWasReceived) {
  Serve(2);
  const grpc::Status full =
      Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", absl::Milliseconds(20));
  AlwaysEndWith(0, 0, full);
  AlwaysEndWith(1, 0, kLost);
  const absl::Status refused = StatusOf(Request());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailsOf(refused).retry_delay, absl::Milliseconds(20));
  EXPECT_EQ(Calls(0) + Calls(1), 2u);
}

TEST_F(GenerateStreamTest, WaitsForOverloadedReplicasInMidStream) {
  Serve(2);
  const grpc::Status full =
      Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", absl::Milliseconds(20));
  SetAnswers(0, {Ending(3, kLost), Ending(0, full), Ending(0, full)});
  SetAnswers(1, {Ending(0, full), Ending(0, full)});
  const auto stream = client_->StartGenerate(Request(), options_);
  EXPECT_EQ(ReadAll(stream.get()), Text(Request()));
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
}

// The stream breaks on the first replica, which answers further calls by its other answers.
TEST_F(GenerateStreamTest, LeavesReplicasOfAnotherModelOut) {
  const std::string other = "0123abcd0123abcd0123abcd0123abcd";
  const Answer lost = Ending(3, kLost);
  const Answer early = Ending(1, kLost);
  const Answer whole = [this](const auto& request) { return Whole(request); };
  const Answer differs = [this](const auto& request) {
    GenerateScriptType script = Whole(request);
    script.responses[0].mutable_started()->set_fingerprint("another");
    return script;
  };
  const Answer gone = Ending(0, kLost);
  const Answer stale = Ending(0, {grpc::StatusCode::FAILED_PRECONDITION, "it is " + other});
  const absl::Duration soon = absl::Milliseconds(1);
  const Answer leaving = Ending(0, Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", soon));
  const Answer full = Ending(0, Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", soon));
  const struct {
    std::vector<std::vector<Answer>> replicas;
    std::string counts;  // empty: another replica continues
  } cases[] = {
      {{{lost, whole}, {stale}}, ""},
      {{{lost, leaving, whole}, {stale}}, ""},
      {{{lost, full, whole}, {stale}}, ""},
      {{{lost, gone}, {leaving, whole}, {stale}}, ""},
      {{{lost}, {stale}, {whole}}, ""},
      {{{lost, gone}, {stale}},
       ": it is 0123abcd...; targets that differ: 1, that cannot be reached: 1"},
      {{{lost, gone}, {gone, gone}, {stale}}, "differ: 1, that cannot be reached: 2"},
      {{{lost, leaving, gone}, {stale}}, "differ: 1, that cannot be reached: 1"},
      {{{lost, gone}, {stale}, {stale}}, "differ: 2, that cannot be reached: 1"},
      {{{lost, stale}, {stale}}, "differ: 2, that cannot be reached: 0"},
      {{{lost, stale}}, "byte for byte: it is 0123abcd..."},
      {{{early, differs}},
       "byte for byte: its fingerprint is another, the stream's is fingerprint"},
  };
  int number = 0;
  for (const auto& [replicas, counts] : cases) {
    SCOPED_TRACE(number++);
    servers_.clear();
    Serve(static_cast<int>(replicas.size()));
    for (size_t i = 0; i < replicas.size(); ++i) SetAnswers(i, replicas[i]);
    options_.resume.timeout = absl::Hours(1);
    const auto stream = client_->StartGenerate(Request(), options_);
    const std::string text = ReadAll(stream.get());
    for (size_t i = 0; i < replicas.size(); ++i) EXPECT_EQ(Calls(i), replicas[i].size()) << i;
    const absl::Status status = stream->Finish();
    EXPECT_EQ(status.ok(), counts.empty()) << status;
    if (status.ok()) {
      EXPECT_EQ(text, Text(Request()));
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(DetailsOf(status).reason, "STALE_FINGERPRINT");
    EXPECT_THAT(std::string(status.message()),
                MatchesRegex("the stream broke .UNAVAILABLE: Socket closed., and 127.0.0.1:[0-9]+ "
                             "runs another build, .* byte for byte: .*"));
    EXPECT_THAT(std::string(status.message()), EndsWith(counts));
  }
}

TEST_F(GenerateStreamTest, NamesAReplicaOfAnotherModelWhenItGivesUp) {
  Serve(2);
  EndWith(0, 3, kLost);
  AlwaysEndWith(1, 0, {grpc::StatusCode::FAILED_PRECONDITION, "it differs"});
  options_.resume.timeout = absl::ZeroDuration();
  const std::string message(StatusOf(Request()).message());
  EXPECT_THAT(message, HasSubstr("no replica continued it within 0: " + servers_[1]->target()));
}

TEST_F(GenerateStreamTest, RenamesTheRequestWhereTheLostCallIsStillKnown) {
  Serve(1);
  const grpc::Status in_use(grpc::StatusCode::ALREADY_EXISTS, "request_id is in use");
  SetAnswers(0, {Ending(3, kLost), Ending(0, in_use)});
  v1::GenerateRequest request = Request();
  request.set_request_id("job");
  EXPECT_TRUE(StatusOf(request).ok());
  const auto requests = servers_[0]->generate_requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[1].request_id(), "job");
  EXPECT_EQ(requests[2].request_id(), "job~2");

  AlwaysEndWith(0, 0, in_use);
  EXPECT_EQ(StatusOf(request).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Calls(0), 4u);
}

TEST_F(GenerateStreamTest, ContinuesOnlySoOften) {
  Serve(1);
  AlwaysEndWith(0, 2, kLost);
  options_.resume.max_resumes = 2;
  v1::GenerateRequest request = Request();
  request.mutable_stopping()->set_max_new_tokens(100);
  const absl::Status status = StatusOf(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()), "Socket closed");
  EXPECT_EQ(Calls(0), 3u);
}

TEST_F(GenerateStreamTest, SwitchedOffSendsTheRequestAsItIs) {
  Serve(2);
  AlwaysEndWith(0, 3, kLost);
  options_.resume.max_resumes = 0;
  EXPECT_EQ(StatusOf(Request()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Calls(0), 1u);
  EXPECT_EQ(Calls(1), 0u);
  EXPECT_EQ(servers_[0]->last_generate().SerializeAsString(), Request().SerializeAsString());
}

TEST_F(GenerateStreamTest, GivesUpAfterTheTimeout) {
  Serve(2);
  SetAnswers(0, {Ending(3, kLost)}, /*then=*/Ending(0, kLost));
  AlwaysEndWith(1, 0, kLost);
  options_.resume.timeout = absl::Milliseconds(60);
  const absl::Status status = StatusOf(Request());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the stream broke (UNAVAILABLE: Socket closed), and no replica"));
  EXPECT_GT(Calls(1), 1u);
}

TEST_F(GenerateStreamTest, EndsAtTheDeadlineWhileLookingForAReplica) {
  Serve(1);
  SetAnswers(0, {Ending(3, kLost)}, /*then=*/Ending(0, kLost));
  options_.timeout = absl::Milliseconds(80);
  EXPECT_EQ(StatusOf(Request()).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GenerateStreamTest, CanBeCancelledWhileLookingForAReplica) {
  Serve(1);
  options_.resume.initial_backoff = options_.resume.max_backoff = absl::Hours(1);
  options_.resume.timeout = absl::Hours(2);
  for (const bool by_token : {true, false}) {
    AlwaysEndWith(0, 3, kLost);
    CancelToken token;
    options_.cancel = &token;
    const auto stream = client_->StartGenerate(Request(), options_);
    v1::GenerateResponse event;
    ASSERT_TRUE(stream->Read(&event));
    std::thread canceller([&] { by_token ? token.Cancel() : stream->Cancel(); });
    EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
    canceller.join();
  }
}

TEST_F(GenerateStreamTest, NoticesAReplicaThatLeavesTokensOut) {
  Serve(2);
  EndWith(0, 3, kLost);
  SetAnswers(1, {[this](const auto& request) {
               GenerateScriptType script = Whole(request);
               script.responses.erase(script.responses.begin() + 1);
               return script;
             }});
  const absl::Status status = StatusOf(Request());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("comes next"));
}

}  // namespace
}  // namespace tlm::client
