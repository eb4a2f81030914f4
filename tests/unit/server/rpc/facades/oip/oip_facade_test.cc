#include "server/rpc/facades/oip/oip_facade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

// The service beside the fixture's own, with the same engine.
class OipFacadeTest : public RpcTest {
 protected:
  OipFacadeTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&oip_);
    oip_server_ = builder.BuildAndStart();
    oip_stub_ = inference::GRPCInferenceService::NewStub(
        oip_server_->InProcessChannel(grpc::ChannelArguments()));
    Merge(R"(inputs { name: "text_input" datatype: "BYTES" shape: 1
                      contents { bytes_contents: "ab" } })",
          request_);
  }
  ~OipFacadeTest() override {
    oip_server_->Shutdown(std::chrono::system_clock::now());
    oip_server_->Wait();
  }

  void Open() {
    oip_gate_.Open(
        {call_services_, model_, engine_, admission_, calls_, text_pools_, constraints_, load_});
  }
  bool Ready() {
    grpc::ClientContext context;
    inference::ServerReadyResponse response;
    EXPECT_TRUE(oip_stub_->ServerReady(&context, {}, &response).ok());
    return response.ready();
  }
  grpc::Status Infer() { return oip_stub_->ModelInfer(&context_, request_, &response_); }
  // Starts the call and waits until it is queued.
  void Start() {
    Open();
    status_ = std::async(std::launch::async, [this] { return Infer(); });
    stream_ = engine_.WaitForRequest(0).stream;
  }
  void Push(int32_t id) {
    stream_->PushToken(Token(id));
    FakeEngine::Deliver(*stream_);
  }
  grpc::Status FinishAfter(StreamEnd end = EndedWith(FinishReason::kLength)) {
    stream_->PushEnd(std::move(end));
    FakeEngine::Deliver(*stream_);
    return status_.get();
  }

  RpcGate oip_gate_;
  OipFacade oip_{call_services_, oip_gate_};
  std::unique_ptr<grpc::Server> oip_server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> oip_stub_;
  grpc::ClientContext context_;
  inference::ModelInferRequest request_;
  inference::ModelInferResponse response_;
  std::future<grpc::Status> status_;
  std::shared_ptr<TokenStream> stream_;
};

TEST_F(OipFacadeTest, IsAliveAndNotReadyWhileTheModelLoads) {
  grpc::ClientContext context;
  inference::ServerLiveResponse live;
  ASSERT_TRUE(oip_stub_->ServerLive(&context, {}, &live).ok());
  EXPECT_TRUE(live.live());
  EXPECT_FALSE(Ready());
  const grpc::Status status = Infer();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonIn(status), "STARTING");
}

TEST_F(OipFacadeTest, IsReadyWhileItServes) {
  Open();
  EXPECT_FALSE(Ready());
  oip_.SetServing(true);
  EXPECT_TRUE(Ready());
  oip_.SetServing(false);
  EXPECT_FALSE(Ready());
}

TEST_F(OipFacadeTest, AnswersWithTheWholeOutput) {
  Merge("id: 'mine' parameters { key: 'max_tokens' value { int64_param: 2 } }", request_);
  Start();
  stream_->PushStart({});
  Push('x');
  Push('y');
  ASSERT_TRUE(FinishAfter().ok());
  EXPECT_THAT(response_, HasFields(R"(id: "mine"
      outputs { name: "text_output" datatype: "BYTES" shape: 1 contents { bytes_contents: "xy" } }
      outputs { name: "output_ids" datatype: "INT32" shape: 2
                contents { int_contents: [120, 121] } }
      outputs { name: "finish_reason" datatype: "BYTES" shape: 1
                contents { bytes_contents: "length" } })"));
}

TEST_F(OipFacadeTest, RefusesAnAnswerThatNoMessageHolds) {
  model_.limits.max_response_bytes = 20;
  Start();
  stream_->PushStart({});
  Push('x');
  const grpc::Status status = FinishAfter();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "MESSAGE_TOO_LARGE");
}

TEST_F(OipFacadeTest, FailsAsTheEngineSays) {
  Start();
  EXPECT_EQ(FinishAfter(FailedWith(DataLoss("the logits are not finite"))).error_code(),
            grpc::StatusCode::DATA_LOSS);
}

TEST_F(OipFacadeTest, LetsGoWhenTheClientCancels) {
  Start();
  context_.TryCancel();
  EXPECT_EQ(status_.get().error_code(), grpc::StatusCode::CANCELLED);
  engine_.WaitUntilDetached(*stream_);
}

}  // namespace
}  // namespace tlm
