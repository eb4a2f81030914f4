#include "server/rpc/facades/oip/oip_facade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

// The service beside the fixture's own, with the same engine.
class OipFacadeTest : public RpcTest {
 protected:
  OipFacadeTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&oip_);
    oip_server_ = builder.BuildAndStart();
    oip_stub_ = inference::GRPCInferenceService::NewStub(
        oip_server_->InProcessChannel(grpc::ChannelArguments()));
    auto& text = *request_.add_inputs();
    text.set_name("text_input");
    text.set_datatype("BYTES");
    text.add_shape(1);
    text.mutable_contents()->add_bytes_contents("ab");
  }
  ~OipFacadeTest() override {
    if (client_.joinable()) client_.join();
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
  Request& Start() {
    client_ = std::thread([this] { status_ = Infer(); });
    return engine_.WaitForRequest(0);
  }
  grpc::Status Finish() {
    client_.join();
    return status_;
  }

  RpcGate oip_gate_;
  OipFacade oip_{call_services_, oip_gate_};
  std::unique_ptr<grpc::Server> oip_server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> oip_stub_;
  grpc::ClientContext context_;
  inference::ModelInferRequest request_;
  inference::ModelInferResponse response_;
  std::thread client_;
  grpc::Status status_;
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
  Open();
  (*request_.mutable_parameters())["max_tokens"].set_int64_param(2);
  request_.set_id("mine");
  const std::shared_ptr<TokenStream> stream = Start().stream;
  stream->PushStart({});
  for (const char c : {'x', 'y'}) {
    SampledToken token;
    token.id = c;
    stream->PushToken(std::move(token));
    FakeEngine::Deliver(*stream);
  }
  StreamEnd end;
  end.reason = FinishReason::kLength;
  stream->PushEnd(end);
  FakeEngine::Deliver(*stream);
  ASSERT_TRUE(Finish().ok()) << status_.error_message();
  EXPECT_EQ(response_.id(), "mine");
  ASSERT_EQ(response_.outputs_size(), 3);
  EXPECT_THAT(response_.outputs(0).contents().bytes_contents(), ElementsAre("xy"));
  EXPECT_THAT(response_.outputs(1).contents().int_contents(), ElementsAre('x', 'y'));
  EXPECT_THAT(response_.outputs(2).contents().bytes_contents(), ElementsAre("length"));
}

TEST_F(OipFacadeTest, RefusesAnAnswerThatNoMessageHolds) {
  model_.limits.max_response_bytes = 20;
  Open();
  const std::shared_ptr<TokenStream> stream = Start().stream;
  stream->PushStart({});
  SampledToken token;
  token.id = 'x';
  stream->PushToken(std::move(token));
  StreamEnd end;
  end.reason = FinishReason::kLength;
  stream->PushEnd(end);
  FakeEngine::Deliver(*stream);
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status_), "MESSAGE_TOO_LARGE");
}

TEST_F(OipFacadeTest, FailsAsTheEngineSays) {
  Open();
  const std::shared_ptr<TokenStream> stream = Start().stream;
  StreamEnd end;
  end.status = DataLoss("the logits at position 1 are not finite");
  stream->PushEnd(end);
  FakeEngine::Deliver(*stream);
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::DATA_LOSS);
}

TEST_F(OipFacadeTest, LetsGoWhenTheClientCancels) {
  Open();
  const std::shared_ptr<TokenStream> stream = Start().stream;
  context_.TryCancel();
  EXPECT_EQ(Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!stream->detached()) std::this_thread::yield();
}

}  // namespace
}  // namespace tlm
