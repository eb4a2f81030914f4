#include "client/cpp/generate_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tlm::client {
namespace {

// Protects against a broken server: more outputs are not allocated.
constexpr uint32_t kMaxOutputs = 1 << 16;

void MoveTokens(google::protobuf::RepeatedPtrField<v1::TokenInfo>* from,
                std::vector<v1::TokenInfo>* to) {
  to->insert(to->end(), std::make_move_iterator(from->begin()),
             std::make_move_iterator(from->end()));
}

}  // namespace

v1::VerifyRequest ClaimOf(const v1::GenerateRequest& request, const GenerateResult& result,
                          size_t output) {
  v1::VerifyRequest claim;
  v1::GenerateRequest& original = *claim.mutable_request();
  original = request;
  original.clear_resume();
  *original.mutable_sampling() = result.started.effective();
  claim.set_output_index(static_cast<uint32_t>(output));
  claim.set_fingerprint(result.started.fingerprint());
  const Output& claimed = result.outputs[output];
  for (const v1::TokenInfo& token : claimed.tokens) claim.add_claimed_token_ids(token.id());
  const v1::GenerateFinished& finished = claimed.finished;
  // The token is sent as the end of the output, unless it is one of the tokens.
  if (finished.completion_tokens() != claimed.tokens.size() + 1) return claim;
  if (finished.has_eos_token_id()) claim.add_claimed_token_ids(finished.eos_token_id());
  if (finished.has_stop_token_id()) claim.add_claimed_token_ids(finished.stop_token_id());
  return claim;
}

absl::Status GenerateCollector::Add(v1::GenerateResponse event) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted: {
      const uint32_t outputs = std::max(event.started().effective().num_sequences(), 1u);
      if (outputs > kMaxOutputs) {
        return absl::InternalError(fmt::format("the server announced {} outputs", outputs));
      }
      result_.started = std::move(*event.mutable_started());
      result_.outputs.resize(outputs);
      regions_.resize(outputs);
      break;
    }
    case v1::GenerateResponse::kPrompt:
      MoveTokens(event.mutable_prompt()->mutable_tokens(), &result_.prompt);
      break;
    case v1::GenerateResponse::kTokens: {
      const uint32_t index = event.tokens().output_index();
      if (absl::Status status = CheckOutputIndex(index); !status.ok()) return status;
      Output& output = result_.outputs[index];
      output.text += event.tokens().text();
      AddRegions(index, event.mutable_tokens()->mutable_regions());
      if (!regions_[index].known) output.content += event.tokens().text();
      MoveTokens(event.mutable_tokens()->mutable_tokens(), &output.tokens);
      break;
    }
    case v1::GenerateResponse::kFinished: {
      const uint32_t index = event.finished().output_index();
      if (absl::Status status = CheckOutputIndex(index); !status.ok()) return status;
      AddRegions(index, event.mutable_finished()->mutable_regions());
      result_.outputs[index].finished = std::move(*event.mutable_finished());
      break;
    }
    case v1::GenerateResponse::kSummary:
      result_.summary = std::move(*event.mutable_summary());
      has_summary_ = true;
      break;
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;  // An event of a newer server: compatible by contract.
  }
  return absl::OkStatus();
}

void GenerateCollector::AddRegions(uint32_t output_index, RegionEvents* events) {
  Output& output = result_.outputs[output_index];
  Regions& regions = regions_[output_index];
  // The text so far may have been the beginning of markup.
  if (!events->empty() && !std::exchange(regions.known, true)) output.content.clear();
  for (v1::RegionEvent& event : *events) {
    if (event.has_started() && event.started().has_tool_call()) {
      v1::RegionEvent::ToolCallStarted& call = *event.mutable_started()->mutable_tool_call();
      regions.call = event.started().region_index();
      output.tool_calls.push_back(
          {std::move(*call.mutable_id()), std::move(*call.mutable_name()), "", false});
    } else if (event.has_delta()) {
      AddDelta(event.mutable_delta(), &output, &regions);
    } else if (event.finished().kind() == v1::REGION_KIND_TOOL_CALL) {
      CallOf(event.finished().region_index(), &output, &regions).complete =
          event.finished().complete();
    }
  }
}

void GenerateCollector::AddDelta(v1::RegionEvent::Delta* delta, Output* output,
                                 Regions* regions) const {
  switch (delta->kind()) {
    case v1::REGION_KIND_REASONING:
      output->reasoning += delta->text();
      break;
    case v1::REGION_KIND_TEXT:
      output->content += delta->text();
      break;
    case v1::REGION_KIND_TOOL_CALL:
      CallOf(delta->region_index(), output, regions).arguments_json += delta->arguments_json();
      break;
    default:
      break;  // from a newer server
  }
}

// A stream that an application resumes itself may begin within a call.
ToolCall& GenerateCollector::CallOf(uint32_t region_index, Output* output, Regions* regions) const {
  if (regions->call != region_index) output->tool_calls.emplace_back();
  regions->call = region_index;
  return output->tool_calls.back();
}

absl::Status GenerateCollector::CheckOutputIndex(uint32_t output_index) const {
  if (output_index < result_.outputs.size()) return absl::OkStatus();
  return absl::InternalError(fmt::format("the server sent output {}, announced were {}",
                                         output_index, result_.outputs.size()));
}

absl::Status GenerateCollector::CheckComplete() const {
  const bool all_finished =
      std::all_of(result_.outputs.begin(), result_.outputs.end(), [](const Output& output) {
        return output.finished.reason() != v1::FINISH_REASON_UNSPECIFIED;
      });
  if (!result_.outputs.empty() && all_finished && has_summary_) return absl::OkStatus();
  return absl::InternalError("the server ended the stream with OK before it was complete");
}

}  // namespace tlm::client
