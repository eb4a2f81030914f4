// Every RPC of LanguageModel, and every way in which a call of it ends without its answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/proto.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using Stub = v1::LanguageModel::Stub;

struct Rpc {
  std::string name;
  // Makes a call with this request, in Protobuf's text format, and reads what it answers.
  std::function<grpc::Status(Stub&, grpc::ClientContext*, const std::string& request)> call;
  std::string request;
  // Added to the request, this makes it invalid in this field.
  std::string invalid;
  std::string field;
  // Pushes what the engine computes of a request the call has queued, into one of its token
  // streams.
  std::function<void(const Request&, TokenStream&)> compute = {};
  size_t queued = 1;  // requests that a call queues

  friend void PrintTo(const Rpc& rpc, std::ostream* out) { *out << rpc.name; }
};

std::string NameOf(const ::testing::TestParamInfo<Rpc>& info) { return info.param.name; }

template <typename Message, typename Answer>
auto Unary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Message&, Answer*)) {
  return [=](Stub& stub, grpc::ClientContext* context, const std::string& request) {
    Answer answer;
    return (stub.*method)(context, Proto<Message>(request), &answer);
  };
}
template <typename Message, typename Event>
auto Streaming(std::unique_ptr<grpc::ClientReader<Event>> (Stub::*method)(grpc::ClientContext*,
                                                                          const Message&)) {
  return [=](Stub& stub, grpc::ClientContext* context, const std::string& request) {
    const auto reader = (stub.*method)(context, Proto<Message>(request));
    Event event;
    while (reader->Read(&event)) {
    }
    return reader->Finish();
  };
}

void ComputeTokens(const Request&, TokenStream& stream) {
  for (int i = 0; i < 10; ++i) {
    stream.PushToken(Token('a'));
    FakeEngine::Deliver(stream);
  }
  stream.PushEnd(EndedWith(FinishReason::kLength));
}
void ComputeClaim(const Request& request, TokenStream& stream) {
  for (const int32_t id : request.generate()->claimed) {
    stream.PushToken(Token(id));
    FakeEngine::Deliver(stream);
  }
  stream.PushEnd(EndedWith(FinishReason::kRowsComplete));
}
void ComputeScores(const Request&, TokenStream& stream) {
  SampledToken token = Token('c');
  token.score = ScoredToken{'c', -0.5f, 1};
  stream.PushScored({0, token});
  FakeEngine::Deliver(stream);
  stream.PushEnd(EndedWith(FinishReason::kRowsComplete));
}
void ComputeRows(const Request& request, TokenStream& stream) {
  for (const int64_t position : request.forward()->positions) {
    stream.PushRow({position, std::vector<float>(300)});
    FakeEngine::Deliver(stream);
  }
  stream.PushEnd(EndedWith(FinishReason::kRowsComplete));
}

constexpr char kPrompt[] = R"(prompt: "hello" add_special_tokens: false )";

const Rpc kEngineRpcs[] = {
    {"Generate", Streaming(&Stub::Generate), kPrompt, "sampling { top_p: 0 }", "sampling.top_p",
     ComputeTokens},
    {"GenerateOfThreeOutputs", Streaming(&Stub::Generate),
     std::string(kPrompt) + "sampling { num_sequences: 3 } ", "output { top_logprobs: 21 }",
     "output.top_logprobs", ComputeTokens},
    {"Forward", Streaming(&Stub::Forward), "sequences { ids: 5 } sequences { ids: [5, 5] } ",
     "sequences {}", "sequences[2]", ComputeRows, /*queued=*/2},
    {"Score", Unary(&Stub::Score), std::string(kPrompt) + R"(continuations { text: "cd" } )",
     "continuations {}", "continuations[1]", ComputeScores},
    {"Verify", Unary(&Stub::Verify),
     R"(request { prompt: "ab" sampling { seed: 7 } } claimed_token_ids: [99, 100] )",
     "claimed_token_ids: 300", "claimed_token_ids[2]", ComputeClaim},
};
const Rpc kOtherRpcs[] = {
    {"Tokenize", Unary(&Stub::Tokenize), R"(text: "ab" )", R"(request_id: "\n")", "request_id"},
    {"Detokenize", Unary(&Stub::Detokenize), "token_ids: 7 ", "token_ids: 300", "token_ids[1]"},
    {"ModelInfo", Unary(&Stub::ModelInfo), "", R"(request_id: "\n")", "request_id"},
};

class AnyRpcTest : public RpcTest, public ::testing::WithParamInterface<Rpc> {
 protected:
  grpc::Status Call(grpc::ClientContext& context, const std::string& more = "") {
    return GetParam().call(*stub_, &context, GetParam().request + more);
  }
  // Of a call that ends without the engine.
  grpc::Status Refusal(const std::string& more = "") {
    grpc::ClientContext context;
    const grpc::Status status = Call(context, more);
    EXPECT_EQ(engine_.submitted(), 0);
    EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
    return status;
  }
};
INSTANTIATE_TEST_SUITE_P(Engine, AnyRpcTest, ::testing::ValuesIn(kEngineRpcs), NameOf);
INSTANTIATE_TEST_SUITE_P(Others, AnyRpcTest, ::testing::ValuesIn(kOtherRpcs), NameOf);

TEST_P(AnyRpcTest, AnInvalidFieldIsNamed) {
  const grpc::Status status = Refusal(GetParam().invalid);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldIn(status), GetParam().field);
}

TEST_P(AnyRpcTest, AnotherModelIsNotFound) {
  const grpc::Status status =
      Refusal(GetParam().name == "Verify" ? R"(request { model: "huge" })" : R"(model: "huge")");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
}

// A call that the engine has a part in.
class EngineRpcTest : public AnyRpcTest {
 protected:
  ~EngineRpcTest() override {
    if (context_ != nullptr) context_->TryCancel();
  }

  // Starts the call and waits until it is queued.
  void Start(const std::string& more = "") {
    const auto first = static_cast<size_t>(engine_.submitted());
    context_ = std::make_unique<grpc::ClientContext>();
    status_ = std::async(std::launch::async, [this, more] { return Call(*context_, more); });
    begun_ = false;
    requests_.clear();
    for (size_t i = 0; i < GetParam().queued; ++i) {
      requests_.push_back(&engine_.WaitForRequest(first + i));
    }
  }
  // For each token stream of the call.
  template <typename F>
  void ForStreams(F function) {
    for (const Request* const request : requests_) {
      function(*request, *request->stream);
      for (const auto& stream : request->branch_streams) function(*request, *stream);
    }
  }
  void Begin() {
    if (std::exchange(begun_, true)) return;
    ForStreams([](const Request&, TokenStream& stream) {
      stream.PushStart({});
      FakeEngine::Deliver(stream);
    });
  }
  void Compute() {
    Begin();
    ForStreams([](const Request& request, TokenStream& stream) {
      GetParam().compute(request, stream);
      FakeEngine::Deliver(stream);
    });
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::vector<const Request*> requests_;
  bool begun_ = false;
  std::future<grpc::Status> status_;
};
INSTANTIATE_TEST_SUITE_P(Engine, EngineRpcTest, ::testing::ValuesIn(kEngineRpcs), NameOf);

TEST_P(EngineRpcTest, IsAnsweredOnceTheEngineHasComputed) {
  Start();
  Compute();
  EXPECT_TRUE(status_.get().ok());
}

TEST_P(EngineRpcTest, TheEnginesRefusalIsTold) {
  for (const absl::Status& refusal :
       {WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"),
        WithReason(DeadlineExceeded("it takes 3 s"), "INFEASIBLE")}) {
    engine_.set_submit_status(WithRetryAfter(refusal, absl::Seconds(3)));
    const grpc::Status status = Refusal();
    EXPECT_EQ(static_cast<absl::StatusCode>(status.error_code()), refusal.code());
    EXPECT_EQ(status.error_message(), refusal.message());
    EXPECT_EQ(ReasonIn(status), ReasonOf(refusal));
    EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(), 3);
  }
}

TEST_P(EngineRpcTest, AFullEngineRefusesBeforeTheRequestIsRead) {
  engine_.set_open_status(WithRetryAfter(
      WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"), absl::Seconds(2)));
  const grpc::Status status = Refusal(GetParam().invalid);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "QUEUE_FULL");
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(), 2);
}

TEST_P(EngineRpcTest, ADrainingServerSaysSoBeforeItSaysThatItIsFull) {
  engine_.set_open_status(WithReason(ResourceExhausted("full"), "QUEUE_FULL"));
  admission_.Drain();
  const grpc::Status status = Refusal();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonIn(status), "DRAINING");
}

TEST_P(EngineRpcTest, APassedDeadlineLetsGoOfTheSequences) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Call(context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_P(EngineRpcTest, ADeadlineThatOnlyTheServerKnowsHasItsReason) {
  const grpc::Status status = ExpiredStatusOf(
      [this](const std::unique_ptr<grpc::ClientContext>& context) { return Call(*context); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonIn(status), "EXPIRED_IN_QUEUE");
  engine_.WaitUntilDetached(*engine_.WaitForRequest().stream);
}

TEST_P(EngineRpcTest, AFaultEndsTheCallWithItsStatus) {
  Start();
  Begin();
  requests_[0]->stream->PushEnd(FailedWith(DataLoss("non-finite logits")));
  FakeEngine::Deliver(*requests_[0]->stream);
  const grpc::Status status = status_.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message(), "non-finite logits");
  ForStreams([this](const Request& request, TokenStream& stream) {
    if (&stream != requests_[0]->stream.get()) engine_.WaitUntilDetached(stream);
  });
}

TEST_P(EngineRpcTest, CancelLetsGoOfTheSequencesAndOfTheId) {
  constexpr char kId[] = R"(request_id: "mine")";
  for (const bool begun : {false, true}) {
    Start(kId);
    if (begun) Begin();
    context_->TryCancel();
    ForStreams([this](const Request&, TokenStream& stream) { engine_.WaitUntilDetached(stream); });
    EXPECT_EQ(status_.get().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
    Compute();  // Results of a call that is over are ignored.
  }
  Start(kId);
  Compute();
  EXPECT_TRUE(status_.get().ok());
}

// Wake-ups, reads and cancellations race in every order; nothing may be used after its end.
TEST_P(EngineRpcTest, SurvivesCancellationAtAnyMoment) {
  for (int round = 0; round < 100; ++round) {
    Start();
    std::thread engine_side([this] { Compute(); });
    for (int spin = 0; spin < round % 20; ++spin) std::this_thread::yield();
    context_->TryCancel();
    engine_side.join();
    status_.wait();
  }
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm
