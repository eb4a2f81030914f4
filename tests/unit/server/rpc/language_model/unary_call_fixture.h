// Calls that the fake engine answers with one message: Score and Verify.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_LANGUAGE_MODEL_UNARY_CALL_FIXTURE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_LANGUAGE_MODEL_UNARY_CALL_FIXTURE_H_

#include <memory>
#include <thread>
#include <utility>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {

template <typename Message, typename Answer>
class UnaryCallTest : public RpcTest {
 protected:
  using Method = grpc::Status (v1::LanguageModel::Stub::*)(grpc::ClientContext*, const Message&,
                                                           Answer*);

  explicit UnaryCallTest(Method method) : method_(method) {}
  ~UnaryCallTest() override {
    if (client_.joinable()) client_.join();
  }

  grpc::Status Call(grpc::ClientContext& context) {
    return (stub_.get()->*method_)(&context, request_, &response_);
  }
  // Starts the call and waits until it is queued.
  Request& Start(size_t index = 0) {
    if (client_.joinable()) client_.join();
    context_ = std::make_unique<grpc::ClientContext>();
    client_ = std::thread([this] { status_ = Call(*context_); });
    Request& queued = engine_.WaitForRequest(index);
    stream_ = queued.stream;
    return queued;
  }
  grpc::Status Finish() {
    client_.join();
    return status_;
  }
  // Of a call that ends without the engine.
  grpc::Status Refusal() {
    grpc::ClientContext context;
    return Call(context);
  }
  void PushEnd(const absl::Status& status = absl::OkStatus(),
               FinishReason reason = FinishReason::kRowsComplete) {
    StreamEnd end;
    end.status = status;
    end.reason = reason;
    stream_->PushEnd(std::move(end));
    FakeEngine::Deliver(*stream_);
  }

  const Method method_;
  Message request_;
  Answer response_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::thread client_;
  grpc::Status status_;
  std::shared_ptr<TokenStream> stream_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_LANGUAGE_MODEL_UNARY_CALL_FIXTURE_H_
