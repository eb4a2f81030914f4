#include "tests/benchmarks/load/vllm_calls.h"

#include <grpcpp/support/async_stream.h>

#include <memory>

#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace tlm::bench {
namespace {

namespace engine = ::vllm::grpc::engine;

engine::GenerateRequest ToVllm(const v1::GenerateRequest& request) {
  engine::GenerateRequest message;
  *message.mutable_tokenized()->mutable_input_ids() = request.prompt_token_ids().ids();
  engine::SamplingParams& sampling = *message.mutable_sampling_params();
  sampling.set_temperature(request.sampling().temperature());
  sampling.set_top_p(request.sampling().top_p());
  sampling.set_repetition_penalty(request.sampling().repetition_penalty());
  sampling.set_seed(static_cast<int32_t>(request.sampling().seed() & 0x7fffffff));
  sampling.set_max_tokens(request.stopping().max_new_tokens());
  sampling.set_ignore_eos(request.stopping().ignore_eos());
  message.set_stream(true);
  return message;
}

class VllmReader final : public load::EventReader {
 public:
  VllmReader(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
             const v1::GenerateRequest& request, grpc::CompletionQueue* queue)
      : reader_(engine::VllmEngine::NewStub(channel)->PrepareAsyncGenerate(context, ToVllm(request),
                                                                           queue)) {}

  void StartCall(void* tag) override { reader_->StartCall(tag); }
  void Read(void* tag) override { reader_->Read(&response_, tag); }
  void Finish(grpc::Status* status, void* tag) override { reader_->Finish(status, tag); }

  const v1::GenerateResponse& event() override {
    event_.Clear();
    const engine::GenerateStreamChunk& chunk = response_.chunk();
    for (const uint32_t id : chunk.token_ids()) event_.mutable_tokens()->add_tokens()->set_id(id);
    return event_;
  }

 private:
  engine::GenerateResponse response_;
  v1::GenerateResponse event_;
  std::unique_ptr<grpc::ClientAsyncReader<engine::GenerateResponse>> reader_;
};

}  // namespace

load::PrepareCall VllmCalls() {
  return [](const auto& channel, grpc::ClientContext* context, const v1::GenerateRequest& request,
            grpc::CompletionQueue* queue) {
    return std::make_unique<VllmReader>(channel, context, request, queue);
  };
}

}  // namespace tlm::bench
