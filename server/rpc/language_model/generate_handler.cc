#include <memory>
#include <optional>
#include <utility>

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/streaming_call.h"
#include "server/rpc/convert/proto_time.h"
#include "server/rpc/convert/sampling_message.h"
#include "server/rpc/language_model/handlers.h"
#include "server/rpc/output/call_cost.h"
#include "server/rpc/output/output_group.h"

namespace tlm {
namespace {

// Results that a call takes in while a write is in flight; more stay in the token streams.
constexpr int64_t kMaxBacklog = 256;

class GenerateReactor final : public StreamingCall<v1::GenerateResponse> {
 public:
  GenerateReactor(grpc::CallbackServerContext* context, const RpcContext& rpc)
      : StreamingCall(context, BeginCall("Generate", Role::kInference, *context, rpc), rpc) {}

  void Start(const grpc::ByteBuffer& request) {
    Run<v1::GenerateRequest>(request, [this](const auto& message) { return Take(message); });
  }

 private:
  absl::Status Take(const v1::GenerateRequest& message) {
    TLM_ASSIGN_OR_RETURN(GenerateCall call, ConvertGenerate(message, rpc_.model, rpc_.random));
    MutexLock lock(&mutex_);
    record_.prompt_tokens = static_cast<int64_t>(call.prompt.size());
    TLM_RETURN_IF_ERROR(Admit(call.priority));
    FillSampling(call.work.sampling, call.num_sequences, effective_);
    effective_.set_seed(call.work.sampling.seed);
    timing_ = call.output.timing;
    resource_usage_ = call.output.resource_usage;
    outputs_.emplace(call, rpc_.model.tokenizer, weak_from_this());
    TLM_RETURN_IF_ERROR(outputs_->Replay(call.work.generated));
    record_.completion_tokens = outputs_->completion_tokens();
    return Submit(outputs_->RequestFor(std::move(call), record_.arrival));
  }

  void Collect() override TLM_REQUIRES(mutex_) {
    if (!outputs_.has_value()) return;
    outputs_->Collect();
    const int64_t tokens = outputs_->completion_tokens();
    if (tokens > record_.completion_tokens && !record_.first_token.has_value()) {
      MarkFirstToken(record_);
    }
    record_.completion_tokens = tokens;
    if (outputs_->start().has_value()) NoteStart(*outputs_->start());
  }

  bool IsBehind() const override TLM_REQUIRES(mutex_) {
    return outputs_.has_value() && outputs_->backlog() > kMaxBacklog;
  }

  NextStep Next(v1::GenerateResponse& message) override TLM_REQUIRES(mutex_) {
    if (!outputs_.has_value()) return NextStep::Nothing();
    if (outputs_->start().has_value()) {
      if (!std::exchange(started_sent_, true)) {
        FillStarted(*message.mutable_started());
        return NextStep::Message();
      }
      if (outputs_->NextEvent(message)) return NextStep::Message();
    }
    if (!outputs_->failure().ok()) return NextStep::End(outputs_->failure());
    if (!outputs_->complete()) return NextStep::Nothing();
    if (std::exchange(summary_sent_, true)) return NextStep::End(absl::OkStatus());
    FillSummary(*message.mutable_summary());
    RecordCompletion();
    return NextStep::Message();
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    if (outputs_.has_value()) outputs_->Detach();
  }

  void FillStarted(v1::GenerateStarted& started) TLM_REQUIRES(mutex_) {
    started.set_request_id(record_.request_id);
    started.mutable_effective()->Swap(&effective_);
    started.set_prompt_token_count(static_cast<uint32_t>(record_.prompt_tokens));
    started.set_cached_prompt_tokens(static_cast<uint32_t>(record_.cached_prompt_tokens));
    started.set_fingerprint(rpc_.model.fingerprint);
    SetDuration(record_.queue_time, started.mutable_queue_time());
  }

  void FillSummary(v1::GenerateSummary& summary) TLM_REQUIRES(mutex_) {
    *summary.mutable_usage() = UsageOf(record_);
    if (timing_) outputs_->FillTiming(*summary.mutable_timing());
    if (resource_usage_) {
      outputs_->FillResources(rpc_.model.config, StepWeightBytes(rpc_.model),
                              *summary.mutable_resources());
    }
  }

  void RecordCompletion() TLM_REQUIRES(mutex_) {
    for (size_t i = 0; i < outputs_->size(); ++i) {
      record_.metrics->CountOutput(outputs_->FinishName(i));
    }
    record_.finish = outputs_->FinishName(0);
    record_.prefill_time = outputs_->prefill_time();
    record_.decode_time = outputs_->decode_time();
  }

  v1::SamplingParams effective_ TLM_GUARDED_BY(mutex_);  // until `started` takes it
  bool timing_ TLM_GUARDED_BY(mutex_) = false;
  bool resource_usage_ TLM_GUARDED_BY(mutex_) = false;
  std::optional<OutputGroup> outputs_ TLM_GUARDED_BY(mutex_);
  bool started_sent_ TLM_GUARDED_BY(mutex_) = false;
  bool summary_sent_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer& request,
                                                          const RpcContext& rpc) {
  // Shared: a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<GenerateReactor>(context, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
