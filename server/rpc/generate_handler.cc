#include "server/rpc/generate_handler.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/rpc/call_cost.h"
#include "server/rpc/output_group.h"
#include "server/rpc/proto_time.h"
#include "server/rpc/sampling_message.h"
#include "server/rpc/streaming_call.h"

namespace tlm {
namespace {

class GenerateReactor final : public StreamingCall<v1::GenerateResponse> {
 public:
  GenerateReactor(grpc::CallbackServerContext* context, const RpcContext& rpc)
      : StreamingCall(context, CallRecord::Begin("Generate", rpc.clock)), rpc_(rpc) {}

  void Start(const v1::GenerateRequest& request) {
    KeepAlive();
    const absl::Status status = Submit(request);
    if (!status.ok()) FinishEarly(status);
  }

 private:
  absl::Status Submit(const v1::GenerateRequest& message) {
    TLM_ASSIGN_OR_RETURN(std::string request_id,
                         RequestIdOf(message.request_id(), rpc_.model, rpc_.random));
    absl::StatusOr<GenerateCall> converted = ConvertGenerate(message, rpc_.model, rpc_.random);
    MutexLock lock(&mutex_);
    record_.request_id = request_id;
    TLM_ASSIGN_OR_RETURN(GenerateCall call, std::move(converted));
    const absl::Time deadline = DeadlineFrom(context_->deadline());
    record_.prompt_tokens = static_cast<int64_t>(call.prompt.size());
    TLM_ASSIGN_OR_RETURN(ticket_,
                         rpc_.admission.Admit(request_id, record_.prompt_tokens, deadline));
    FillSampling(call.work.sampling, call.num_sequences, effective_);
    effective_.set_seed(call.work.sampling.seed);
    timing_ = call.output.timing;
    resource_usage_ = call.output.resource_usage;
    outputs_.emplace(call, rpc_.model.tokenizer, weak_from_this());
    Request request;
    request.id = std::move(request_id);
    request.prompt = std::move(call.prompt);
    request.generate = std::move(call.work);
    request.priority = call.priority;
    request.deadline = deadline;
    request.stream = outputs_->stream(0);
    for (int64_t i = 1; i < call.num_sequences; ++i) {
      request.branch_streams.push_back(outputs_->stream(static_cast<size_t>(i)));
    }
    return rpc_.engine.Submit(std::move(request));
  }

  void Collect() override TLM_REQUIRES(mutex_) {
    if (!outputs_.has_value()) return;
    outputs_->Collect();
    record_.completion_tokens = outputs_->completion_tokens();
    if (!outputs_->start().has_value()) return;
    record_.queue_time = outputs_->start()->queue_time;
    record_.cached_prompt_tokens = outputs_->start()->cached_prompt_tokens;
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
    return NextStep::Message();
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    if (outputs_.has_value()) outputs_->Detach();
  }

  void Release() override TLM_REQUIRES(mutex_) { ticket_ = Admission::Ticket(); }

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

  const RpcContext& rpc_;
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);
  v1::SamplingParams effective_ TLM_GUARDED_BY(mutex_);  // until `started` takes it
  bool timing_ TLM_GUARDED_BY(mutex_) = false;
  bool resource_usage_ TLM_GUARDED_BY(mutex_) = false;
  std::optional<OutputGroup> outputs_ TLM_GUARDED_BY(mutex_);
  bool started_sent_ TLM_GUARDED_BY(mutex_) = false;
  bool summary_sent_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerate(grpc::CallbackServerContext* context,
                                                              const v1::GenerateRequest& request,
                                                              const RpcContext& rpc) {
  // Shared: a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<GenerateReactor>(context, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
