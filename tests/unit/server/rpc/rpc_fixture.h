// The LanguageModel service in this process, on a fake engine.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/observe/log.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/language_model/language_model_service.h"
#include "tests/unit/server/rpc/fake_engine.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {

class RpcTest : public ::testing::Test {
 protected:
  explicit RpcTest(bool with_tokenizer = true, int64_t max_context = 64)
      : tokenizer_(with_tokenizer ? MakeByteTokenizer() : nullptr),
        model_(MakeServedModel(tokenizer_.get())) {
    model_.limits.max_context_tokens = max_context;
    EXPECT_TRUE(SetUpLog("off", LogFormat::kText).ok());
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::LanguageModel::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
    admission_.Open();
    gate_.Open(
        {call_services_, model_, engine_, admission_, calls_, text_pools_, constraints_, load_});
  }
  ~RpcTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  // The detail of this type in a status, or an empty one.
  template <typename Detail>
  static Detail DetailOf(const grpc::Status& status) {
    google::rpc::Status details;
    details.ParseFromString(status.error_details());
    Detail detail;
    for (const auto& any : details.details()) {
      if (any.Is<Detail>()) any.UnpackTo(&detail);
    }
    return detail;
  }
  static std::string ReasonIn(const grpc::Status& status) {
    return DetailOf<google::rpc::ErrorInfo>(status).reason();
  }
  // The only field at fault.
  static std::string FieldIn(const grpc::Status& status) {
    const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
    return bad_request.field_violations_size() == 1 ? bad_request.field_violations(0).field() : "";
  }

  // The only thread that reads texts of so many bytes is busy as long as this lives.
  class BusyReaders {
   public:
    BusyReaders(TextPools& texts, int64_t bytes) : pool_(*texts.For(bytes)) {
      const auto turn = pool_.Add("another", bytes, [this](const absl::Status&) {
        begun_.set_value();
        end_.get_future().wait();
        done_.set_value();
      });
      EXPECT_TRUE(turn.ok());
      begun_.get_future().wait();
    }
    ~BusyReaders() {
      end_.set_value();
      done_.get_future().wait();
    }
    // Returns when something waits, or nothing.
    void WaitUntilOthersWait(bool others = true) const {
      while ((pool_.waiting_bytes() > 0) != others) std::this_thread::yield();
    }

   private:
    FairPool& pool_;
    std::promise<void> begun_;
    std::promise<void> end_;
    std::promise<void> done_;
  };

  // How a call ends whose deadline only the server knows: `call` makes one with a context that has
  // it. On a machine that is very busy gRPC's own cancellation, which knows no reason, may overtake
  // the server's answer; then the call is made again.
  template <typename Call>
  static grpc::Status ExpiredStatusOf(Call call) {
    grpc::Status status;
    for (int attempt = 0; attempt < 5 && ReasonIn(status).empty(); ++attempt) {
      auto context = std::make_unique<grpc::ClientContext>();
      context->AddMetadata("grpc-timeout", "400m");
      status = call(std::move(context));
    }
    return status;
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  ServedModel model_;
  FakeEngine engine_;
  Admission admission_{AdmissionLimits(), *Clock::Monotonic(),
                       [this] { return engine_.CheckOpen(); }};
  CallRegistry calls_;
  TextPools text_pools_;
  ConstraintCompiler constraints_{{}, tokenizer_.get(), {}};
  LoadReporter load_{engine_, /*max_running_requests=*/8, *Clock::Monotonic()};
  std::atomic<uint64_t> random_{100};
  Metrics metrics_;
  AllowAllAuthenticator authenticator_;
  const CallServices call_services_{authenticator_, metrics_, *Clock::Monotonic(),
                                    [this] { return random_++; }};
  RpcGate gate_;  // open
  LanguageModelService service_{call_services_, gate_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::LanguageModel::Stub> stub_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_RPC_FIXTURE_H_
