#include "server/rpc/generate_handler.h"

#include <memory>
#include <optional>
#include <utility>

#include "server/rpc/call_cost.h"
#include "server/rpc/output_assembler.h"
#include "server/rpc/proto_time.h"
#include "server/rpc/streaming_call.h"

namespace tlm {
namespace {

v1::FinishReason ToProto(const OutputEnd& end) {
  switch (end.reason) {
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kContextLength:
      return v1::FINISH_REASON_CONTEXT_LENGTH;
    case FinishReason::kLength:
    case FinishReason::kRowsComplete:
      break;
  }
  return v1::FINISH_REASON_LENGTH;
}

void FillEffective(const SamplingParams& from, v1::SamplingParams& to) {
  to.set_temperature(from.temperature);
  to.set_top_k(from.top_k);
  to.set_top_p(from.top_p);
  to.set_min_p(from.min_p);
  to.set_typical_p(1.0f);
  to.set_repetition_penalty(1.0f);
  to.set_presence_penalty(0.0f);
  to.set_frequency_penalty(0.0f);
  to.set_seed(from.seed);
  to.set_num_sequences(1);
}

void FillTiming(const StreamEnd& end, bool has_token, v1::Timing& timing) {
  const absl::Duration first_token = end.queue_time + end.prefill_time;
  SetDuration(end.queue_time, timing.mutable_queue());
  SetDuration(end.prefill_time, timing.mutable_prefill());
  if (has_token) SetDuration(first_token, timing.mutable_first_token());
  SetDuration(end.decode_time, timing.mutable_decode());
  SetDuration(first_token + end.decode_time, timing.mutable_total());
}

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
    sampling_ = call.work.sampling;
    plan_ = call.output;
    output_.emplace(call.output, call.work, rpc_.model.tokenizer, record_.prompt_tokens);
    stream_ = std::make_shared<TokenStream>(weak_from_this());
    Request request;
    request.id = std::move(request_id);
    request.prompt = std::move(call.prompt);
    request.generate = std::move(call.work);
    request.priority = call.priority;
    request.deadline = deadline;
    request.stream = stream_;
    return rpc_.engine.Submit(std::move(request));
  }

  void Collect() override TLM_REQUIRES(mutex_) {
    if (output_ == std::nullopt) return;
    TokenStream::Pending pending = stream_->Take();
    if (pending.start.has_value()) {
      start_ = pending.start;
      record_.queue_time = start_->queue_time;
      record_.cached_prompt_tokens = start_->cached_prompt_tokens;
    }
    for (SampledToken& token : pending.tokens) output_->Append(std::move(token));
    if (pending.end.has_value()) {
      stream_end_ = std::move(pending.end);
      if (stream_end_->status.ok()) output_->Close(stream_end_->reason, stream_end_->matched_token);
    }
    record_.completion_tokens = output_->completion_tokens();
    // A stop string was found; the engine knows nothing of those.
    if (output_->ended() && !stream_end_.has_value()) stream_->Detach();
  }

  NextStep Next(v1::GenerateResponse& message) override TLM_REQUIRES(mutex_) {
    if (start_.has_value() && !started_sent_) {
      started_sent_ = true;
      FillStarted(*message.mutable_started());
      return NextStep::Message();
    }
    if (output_->NextEvent(*message.mutable_tokens())) return NextStep::Message();
    if (!output_->ended()) {
      const bool failed = stream_end_.has_value();
      return failed ? NextStep::End(stream_end_->status) : NextStep::Nothing();
    }
    if (!finished_sent_) {
      finished_sent_ = true;
      FillFinished(*message.mutable_finished());
      return NextStep::Message();
    }
    // After a stop string the engine still has to say what the sequence took.
    if (!stream_end_.has_value()) return NextStep::Nothing();
    if (summary_sent_) return NextStep::End(absl::OkStatus());
    summary_sent_ = true;
    FillSummary(*message.mutable_summary());
    return NextStep::Message();
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    if (stream_ != nullptr) stream_->Detach();
  }

  void Release() override TLM_REQUIRES(mutex_) { ticket_ = Admission::Ticket(); }

  void FillStarted(v1::GenerateStarted& started) TLM_REQUIRES(mutex_) {
    started.set_request_id(record_.request_id);
    FillEffective(sampling_, *started.mutable_effective());
    started.set_prompt_token_count(static_cast<uint32_t>(record_.prompt_tokens));
    started.set_cached_prompt_tokens(static_cast<uint32_t>(start_->cached_prompt_tokens));
    started.set_fingerprint(rpc_.model.fingerprint);
    SetDuration(start_->queue_time, started.mutable_queue_time());
  }

  void FillFinished(v1::GenerateFinished& finished) TLM_REQUIRES(mutex_) {
    const OutputEnd& end = output_->end();
    finished.set_reason(ToProto(end));
    if (end.stop_string.has_value()) {
      finished.set_stop_string(*end.stop_string);
    } else if (end.reason == FinishReason::kEos) {
      finished.set_eos_token_id(static_cast<uint32_t>(end.matched_token));
    } else if (end.reason == FinishReason::kStopToken) {
      finished.set_stop_token_id(static_cast<uint32_t>(end.matched_token));
    }
  }

  void FillSummary(v1::GenerateSummary& summary) TLM_REQUIRES(mutex_) {
    v1::Usage& usage = *summary.mutable_usage();
    usage.set_prompt_tokens(static_cast<uint64_t>(record_.prompt_tokens));
    usage.set_cached_prompt_tokens(static_cast<uint64_t>(record_.cached_prompt_tokens));
    usage.set_completion_tokens(static_cast<uint64_t>(record_.completion_tokens));
    if (plan_.timing) {
      FillTiming(*stream_end_, record_.completion_tokens > 0, *summary.mutable_timing());
    }
    if (plan_.resource_usage) FillResources(*summary.mutable_resources());
  }

  void FillResources(v1::ResourceUsage& resources) TLM_REQUIRES(mutex_) {
    // The last token drawn is never computed itself.
    const int64_t computed = record_.prompt_tokens + record_.completion_tokens - 1;
    resources.set_flops(SequenceFlops(rpc_.model.config, computed, record_.completion_tokens));
    resources.set_kv_blocks_peak(static_cast<uint64_t>(stream_end_->kv_blocks_peak));
    resources.set_weight_bytes_read(static_cast<uint64_t>(stream_end_->steps) *
                                    StepWeightBytes(rpc_.model));
  }

  const RpcContext& rpc_;
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);
  std::shared_ptr<TokenStream> stream_ TLM_GUARDED_BY(mutex_);
  SamplingParams sampling_ TLM_GUARDED_BY(mutex_);
  OutputPlan plan_ TLM_GUARDED_BY(mutex_);
  std::optional<OutputAssembler> output_ TLM_GUARDED_BY(mutex_);
  std::optional<StreamStart> start_ TLM_GUARDED_BY(mutex_);
  std::optional<StreamEnd> stream_end_ TLM_GUARDED_BY(mutex_);
  bool started_sent_ TLM_GUARDED_BY(mutex_) = false;
  bool finished_sent_ TLM_GUARDED_BY(mutex_) = false;
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
