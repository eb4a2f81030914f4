#include "server/rpc/generate/generate_outputs.h"

#include <utility>

#include "model/base/errors.h"
#include "server/rpc/convert/proto_time.h"
#include "server/rpc/convert/sampling_message.h"
#include "server/rpc/output/call_cost.h"

namespace tlm {
namespace {

void FillSpeculation(const SpeculationCounts& counts, v1::SpeculationUsage& speculation) {
  speculation.set_drafted_tokens(static_cast<uint64_t>(counts.drafted));
  speculation.set_accepted_tokens(static_cast<uint64_t>(counts.accepted));
  speculation.set_steps_saved(static_cast<uint64_t>(counts.steps_saved));
}

}  // namespace

void NoteRequest(const v1::GenerateRequest& request, const GenerateCall& call, bool streaming,
                 CallRecord& record) {
  if (request.has_chat()) record.operation = "chat";
  const SamplingParams& sampling = call.work.sampling;
  GenerateFacts& facts = record.generate.emplace();
  facts.streaming = streaming;
  if (request.sampling().has_seed()) facts.seed = request.sampling().seed();
  facts.temperature = sampling.temperature;
  facts.top_k = sampling.top_k;
  facts.top_p = sampling.top_p;
  facts.presence_penalty = sampling.presence_penalty;
  facts.frequency_penalty = sampling.frequency_penalty;
  facts.max_new_tokens = call.work.stop.max_new_tokens;
  facts.num_sequences = call.num_sequences;
}

GenerateOutputs::GenerateOutputs(const GenerateCall& call, const ServedModel& model,
                                 const std::weak_ptr<StreamListener>& listener)
    : model_(model),
      timing_(call.output.timing),
      resource_usage_(call.output.resource_usage),
      regions_(call.output.regions.has_value()),
      speculation_(model.limits.engine.speculation != Speculation::kOff &&
                   call.work.max_draft_tokens > 0),
      outputs_(call, model.tokenizer, listener) {
  FillSampling(call.work.sampling, call.num_sequences, effective_);
  effective_.set_seed(call.work.sampling.seed);
}

absl::StatusOr<Request> GenerateOutputs::Begin(GenerateCall call, CallRecord& record) {
  TLM_RETURN_IF_ERROR(outputs_.Replay(call.work.generated));
  record.completion_tokens = outputs_.completion_tokens();
  return outputs_.RequestFor(std::move(call), record.arrival);
}

void GenerateOutputs::Collect(CallRecord& record) {
  outputs_.Collect();
  const int64_t tokens = outputs_.completion_tokens();
  if (tokens > record.completion_tokens && !record.first_token.has_value()) {
    MarkFirstToken(record);
  }
  record.completion_tokens = tokens;
}

std::optional<absl::Status> GenerateOutputs::Next(CallRecord& record, v1::GenerateResponse& event) {
  if (start().has_value()) {
    if (!std::exchange(started_sent_, true)) {
      FillStarted(record, *event.mutable_started());
      return std::nullopt;
    }
    if (outputs_.NextEvent(event)) return std::nullopt;
  }
  if (!outputs_.failure().ok()) return outputs_.failure();
  if (!outputs_.complete()) return std::nullopt;
  if (std::exchange(summary_sent_, true)) return absl::OkStatus();
  FillSummary(record, *event.mutable_summary());
  return std::nullopt;
}

void GenerateOutputs::FillStarted(const CallRecord& record, v1::GenerateStarted& started) {
  started.set_request_id(record.request_id);
  started.mutable_effective()->Swap(&effective_);
  started.set_prompt_token_count(static_cast<uint32_t>(record.prompt_tokens));
  started.set_cached_prompt_tokens(static_cast<uint32_t>(record.cached_prompt_tokens));
  started.set_fingerprint(model_.fingerprint);
  SetDuration(record.queue_time, started.mutable_queue_time());
}

void GenerateOutputs::FillSummary(CallRecord& record, v1::GenerateSummary& summary) const {
  if (regions_) record.metrics->CountRegions(record.regions.emplace(outputs_.regions()));
  *summary.mutable_usage() = UsageOf(record);
  if (timing_) outputs_.FillTiming(*summary.mutable_timing());
  if (resource_usage_) {
    outputs_.FillResources(model_.config, StepWeightBytes(model_), *summary.mutable_resources());
  }
  if (speculation_) FillSpeculation(outputs_.speculation(), *summary.mutable_speculation());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    record.finishes.push_back(outputs_.FinishName(i));
    record.metrics->CountOutput(record.finishes.back());
  }
  record.prefill_time = outputs_.prefill_time();
  record.decode_time = outputs_.decode_time();
}

}  // namespace tlm
