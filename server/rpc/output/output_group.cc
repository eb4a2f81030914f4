#include "server/rpc/output/output_group.h"

#include <algorithm>
#include <utility>

#include "server/rpc/convert/proto_time.h"
#include "server/rpc/output/call_cost.h"

namespace tlm {
namespace {

void FillFinished(const OutputAssembler& output, size_t index, v1::GenerateFinished& finished) {
  const OutputEnd& end = output.end();
  finished.set_output_index(static_cast<uint32_t>(index));
  finished.set_completion_tokens(static_cast<uint64_t>(output.completion_tokens()));
  finished.set_reason(ToProto(end.reason));
  if (end.stop_string.has_value()) {
    finished.set_stop_string(*end.stop_string);
  } else if (end.reason == FinishReason::kEos) {
    finished.set_eos_token_id(static_cast<uint32_t>(end.matched_token));
  } else if (end.reason == FinishReason::kStopToken) {
    finished.set_stop_token_id(static_cast<uint32_t>(end.matched_token));
  }
}

}  // namespace

OutputGroup::OutputGroup(const GenerateCall& call, const Tokenizer* tokenizer,
                         const std::weak_ptr<StreamListener>& listener)
    : prompt_tokens_(static_cast<int64_t>(call.prompt.size())) {
  if (call.work.score_prompt) prompt_.emplace(call.prompt.front(), prompt_tokens_, tokenizer);
  outputs_.reserve(static_cast<size_t>(call.num_sequences));
  for (int64_t i = 0; i < call.num_sequences; ++i) {
    const uint64_t call_seed = call.output.regions.has_value() ? CallSeed(call.prompt, i) : 0;
    outputs_.push_back(
        {std::make_shared<TokenStream>(listener, kStreamCapacity),
         OutputAssembler(call.output, call.work, tokenizer, prompt_tokens_, call_seed),
         std::nullopt});
  }
}

absl::Status OutputGroup::Replay(std::span<const int32_t> ids) {
  Output& output = outputs_.front();
  TLM_RETURN_IF_ERROR(output.assembler.Replay(ids));
  if (output.assembler.ended()) output.stream->Detach();
  return absl::OkStatus();
}

Request OutputGroup::RequestFor(GenerateCall call, absl::Time arrival) const {
  Request request;
  request.prompt = std::move(call.prompt);
  request.work = std::move(call.work);
  request.cache = std::move(call.cache);
  request.priority = call.priority;
  request.soft_deadline = arrival + call.soft_time_limit;
  request.stream = outputs_.front().stream;
  for (size_t i = 1; i < outputs_.size(); ++i) {
    request.branch_streams.push_back(outputs_[i].stream);
  }
  return request;
}

void OutputGroup::Collect() {
  for (Output& output : outputs_) {
    if (!failure_.ok()) return;
    CollectFrom(output);
  }
}

void OutputGroup::CollectFrom(Output& output) {
  if (output.stream_end.has_value()) return;
  const bool is_first = &output == &outputs_.front();
  TokenStream::Pending pending = output.stream->Take();
  if (pending.start.has_value() && is_first) start_ = pending.start;
  for (ScoredEntry& entry : pending.scored) prompt_->Append(std::move(entry));
  for (SampledToken& token : pending.tokens) output.assembler.Append(std::move(token));
  if (pending.end.has_value()) {
    output.stream_end = std::move(pending.end);
    const StreamEnd& end = *output.stream_end;
    if (end.status.ok()) {
      output.assembler.Close(end.reason, end.matched_token);
    } else if (!output.assembler.ended()) {
      failure_ = end.status;
      Detach();
      return;
    }
    if (!is_first) return;
    if (!start_.has_value()) start_ = StreamStart{.queue_time = end.queue_time};
    if (prompt_.has_value()) prompt_->Close();
  } else if (output.assembler.ended()) {
    // A stop string was found; the engine does not know about stop strings.
    output.stream->Detach();
  }
}

int64_t OutputGroup::backlog() const {
  int64_t results = prompt_.has_value() ? prompt_->backlog() : 0;
  for (const Output& output : outputs_) results += output.assembler.backlog();
  return results;
}

void OutputGroup::Detach() {
  for (const Output& output : outputs_) output.stream->Detach();
}

bool OutputGroup::NextEvent(v1::GenerateResponse& message) {
  if (prompt_.has_value() && !prompt_->complete()) {
    if (prompt_->NextEvent(*message.mutable_prompt())) return true;
    message.clear_event();
    return false;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t index = (turn_ + i) % outputs_.size();
    if (!NextOutputEvent(index, message)) continue;
    turn_ = index + 1;
    return true;
  }
  return false;
}

bool OutputGroup::NextOutputEvent(size_t index, v1::GenerateResponse& message) {
  Output& output = outputs_[index];
  if (output.assembler.NextEvent(*message.mutable_tokens())) {
    message.mutable_tokens()->set_output_index(static_cast<uint32_t>(index));
    return true;
  }
  message.clear_event();
  if (!output.assembler.ended() || output.finished_sent) return false;
  output.finished_sent = true;
  FillFinished(output.assembler, index, *message.mutable_finished());
  output.assembler.EndRegions(*message.mutable_finished());
  return true;
}

bool OutputGroup::complete() const {
  return std::all_of(outputs_.begin(), outputs_.end(), [](const Output& output) {
    return output.finished_sent && output.stream_end.has_value();
  });
}

int64_t OutputGroup::completion_tokens() const {
  int64_t tokens = 0;
  for (const Output& output : outputs_) tokens += output.assembler.completion_tokens();
  return tokens;
}

RegionCounts OutputGroup::regions() const {
  RegionCounts regions;
  for (const Output& output : outputs_) regions.Add(output.assembler.regions());
  return regions;
}

std::string_view OutputGroup::FinishName(size_t output) const {
  const OutputEnd& end = outputs_[output].assembler.end();
  if (end.stop_string.has_value()) return "stop_string";
  switch (end.reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kContextLength:
      return "context_length";
    case FinishReason::kTimeLimit:
      return "time_limit";
    case FinishReason::kConstraint:
      return "constraint";
    case FinishReason::kConstraintComplete:
      return "constraint_complete";
    case FinishReason::kLength:
    case FinishReason::kRowsComplete:
      break;
  }
  return "length";
}

absl::Duration OutputGroup::decode_time() const {
  absl::Duration longest;
  for (const Output& output : outputs_) longest = std::max(longest, output.stream_end->decode_time);
  return longest;
}

void OutputGroup::FillTiming(v1::Timing& timing) const {
  const StreamEnd& first = *outputs_.front().stream_end;
  const absl::Duration decode = decode_time();
  const absl::Duration first_token = first.queue_time + first.prefill_time;
  SetDuration(first.queue_time, timing.mutable_queue());
  SetDuration(first.prefill_time, timing.mutable_prefill());
  if (SampledTokens() > 0) SetDuration(first_token, timing.mutable_first_token());
  SetDuration(decode, timing.mutable_decode());
  SetDuration(first_token + decode, timing.mutable_total());
}

void OutputGroup::FillResources(const ModelConfig& config, uint64_t step_weight_bytes,
                                v1::ResourceUsage& resources) const {
  // Only the first output counts a block that outputs share.
  int64_t blocks = 0;
  for (const Output& output : outputs_) blocks += output.stream_end->kv_blocks_peak;
  resources.set_flops(Flops(config));
  resources.set_kv_blocks_peak(static_cast<uint64_t>(blocks));
  resources.set_weight_bytes_read(static_cast<uint64_t>(Steps()) * step_weight_bytes);
}

SpeculationCounts OutputGroup::speculation() const {
  SpeculationCounts sum;
  for (const Output& output : outputs_) {
    const SpeculationCounts& counts = output.stream_end->speculation;
    sum.drafted += counts.drafted;
    sum.accepted += counts.accepted;
    sum.steps_saved += counts.steps_saved;
  }
  return sum;
}

int64_t OutputGroup::SampledTokens(const Output& output) {
  return output.assembler.completion_tokens() - output.assembler.replayed_tokens();
}

int64_t OutputGroup::SampledTokens() const {
  int64_t tokens = 0;
  for (const Output& output : outputs_) tokens += SampledTokens(output);
  return tokens;
}

int64_t OutputGroup::Decodes(const Output& output) {
  return std::max<int64_t>(SampledTokens(output) - 1 - output.stream_end->forced_tokens, 0);
}

// The last sampled token is never computed itself.
uint64_t OutputGroup::Flops(const ModelConfig& config) const {
  const int64_t input = prompt_tokens_ + outputs_.front().assembler.replayed_tokens();
  uint64_t flops = PromptFlops(config);
  for (const Output& output : outputs_) {
    const int64_t decoded =
        std::max<int64_t>(SampledTokens(output) - 1 - output.stream_end->uncomputed_tokens, 0);
    flops +=
        SequenceFlops(config, input + decoded, Decodes(output)) - SequenceFlops(config, input, 0);
  }
  return flops;
}

// The prompt, and replayed tokens after it, are computed once, and so is the row from which every
// output samples its first token. If no token was sampled, only the beginning may have been
// computed.
uint64_t OutputGroup::PromptFlops(const ModelConfig& config) const {
  const int64_t cached = start_->cached_prompt_tokens;
  int64_t computed = prompt_tokens_ + outputs_.front().assembler.replayed_tokens();
  int64_t rows = 1;
  if (SampledTokens() == 0) {
    computed = std::max(outputs_.front().stream_end->computed_prompt_tokens, cached);
    rows = 0;
  }
  if (prompt_.has_value()) rows = computed;
  return SequenceFlops(config, computed, rows) - SequenceFlops(config, cached, 0);
}

// Outputs are decoded in parallel, so only the longest output counts for the steps after the
// prompt.
int64_t OutputGroup::Steps() const {
  const Output& first = outputs_.front();
  const int64_t first_decodes = Decodes(first) - first.stream_end->speculation.steps_saved;
  int64_t longest = 0;
  for (size_t i = 1; i < outputs_.size(); ++i) {
    longest = std::max(longest, outputs_[i].stream_end->steps);
  }
  return first.stream_end->steps + std::max<int64_t>(longest - first_decodes, 0);
}

}  // namespace tlm
