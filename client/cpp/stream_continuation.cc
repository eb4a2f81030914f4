#include "client/cpp/stream_continuation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tlm::client {
namespace {

// Protects against a broken server: more outputs are not allocated.
constexpr uint32_t kMaxContinuedOutputs = 1 << 16;
// The limit of servers, suffix included.
constexpr size_t kMaxRequestIdBytes = 128;
// A limit of zero would be refused; this one still ends the output.
constexpr absl::Duration kShortestTimeLimit = absl::Milliseconds(1);

bool WantsIds(const v1::OutputOptions& output) {
  return output.token_ids() || output.logprobs() || output.top_logprobs() > 0;
}

std::string Renamed(const std::string& request_id, int number) {
  const std::string suffix = fmt::format("~{}", number);
  return request_id.substr(0, kMaxRequestIdBytes - suffix.size()) + suffix;
}

void ShortenTimeLimit(absl::Duration elapsed, google::protobuf::Duration* limit) {
  const absl::Duration whole = absl::Seconds(limit->seconds()) + absl::Nanoseconds(limit->nanos());
  const absl::Duration left = std::max(whole - elapsed, kShortestTimeLimit);
  limit->set_seconds(absl::ToInt64Seconds(left));
  limit->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(left % absl::Seconds(1))));
}

// Lists and maps are in the request already; merging would repeat them.
void FixParameters(v1::SamplingParams effective, v1::SamplingParams* sampling) {
  effective.clear_logit_bias();
  effective.clear_allowed_token_ids();
  effective.clear_banned_token_ids();
  sampling->MergeFrom(effective);
}

// Returns how many of `count` items, from index `from` on, are among the first `delivered`.
uint64_t Repeated(uint64_t count, uint64_t from, uint64_t delivered) {
  return delivered > from ? std::min(count, delivered - from) : 0;
}

}  // namespace

StreamContinuation::StreamContinuation(v1::GenerateRequest request, absl::Time start)
    : request_(std::move(request)),
      start_(start),
      ids_wanted_(WantsIds(request_.output())),
      fingerprint_(request_.resume().fingerprint()),
      outputs_(1) {
  const auto& ids = request_.resume().generated_token_ids();
  outputs_[0].ids.assign(ids.begin(), ids.end());
  outputs_[0].announced = outputs_[0].ids.size();
}

bool StreamContinuation::Resumes() const {
  return outputs_.size() == 1 && !outputs_[0].ids.empty();
}

v1::GenerateRequest StreamContinuation::NextRequest(absl::Time now, bool rename) {
  v1::GenerateRequest request = request_;
  if (rename && !request.request_id().empty()) {
    request.set_request_id(Renamed(request.request_id(), calls_));
  }
  request.mutable_output()->set_token_ids(true);
  if (started_) FixParameters(effective_, request.mutable_sampling());
  if (calls_ > 0 && request.scheduling().has_soft_time_limit()) {
    ShortenTimeLimit(now - start_, request.mutable_scheduling()->mutable_soft_time_limit());
  }
  const bool resumes = Resumes();
  if (resumes) {
    v1::ResumePoint& resume = *request.mutable_resume();
    resume.mutable_generated_token_ids()->Assign(outputs_[0].ids.begin(), outputs_[0].ids.end());
    resume.set_fingerprint(fingerprint_);
    // They were delivered before the first token.
    request.mutable_output()->set_prompt_logprobs(false);
  }
  for (Output& output : outputs_) {
    output.call_tokens = resumes ? output.ids.size() : 0;
    output.call_text_bytes = resumes ? output.text_bytes : 0;
    output.call_regions = resumes ? output.regions : RegionPosition();
  }
  call_started_ = false;
  ++calls_;
  return request;
}

absl::StatusOr<StreamContinuation::Taken> StreamContinuation::Take(v1::GenerateResponse* event) {
  if (event->event_case() == v1::GenerateResponse::EVENT_NOT_SET) {
    // An event of a newer server, compatible by contract; on a later call it may be a repetition.
    return calls_ == 1 ? Taken::kDeliver : Taken::kDrop;
  }
  if (event->has_started() == call_started_) {
    return absl::InternalError(call_started_
                                   ? "the server began the stream twice"
                                   : "the server did not begin the stream with `started`");
  }
  switch (event->event_case()) {
    case v1::GenerateResponse::kStarted:
      return TakeStarted(event->mutable_started());
    case v1::GenerateResponse::kPrompt:
      return TakePrompt(event->mutable_prompt());
    case v1::GenerateResponse::kTokens:
      return TakeTokens(event->mutable_tokens());
    case v1::GenerateResponse::kFinished:
      return TakeFinished(event->mutable_finished());
    case v1::GenerateResponse::kSummary:
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  TakeSummary(event->mutable_summary());
  return Taken::kDeliver;
}

absl::StatusOr<StreamContinuation::Taken> StreamContinuation::TakeStarted(
    v1::GenerateStarted* started) {
  call_started_ = true;
  if (started_) {
    const bool continues =
        started->fingerprint() == fingerprint_ && started->prompt_token_count() == prompt_tokens_;
    return continues ? Taken::kDrop : Taken::kOtherModel;
  }
  const uint32_t outputs = std::max(started->effective().num_sequences(), 1u);
  if (outputs > kMaxContinuedOutputs) {
    return absl::InternalError(fmt::format("the server announced {} outputs", outputs));
  }
  outputs_.resize(outputs);
  effective_ = started->effective();
  fingerprint_ = started->fingerprint();
  prompt_tokens_ = started->prompt_token_count();
  cached_prompt_tokens_ = started->cached_prompt_tokens();
  started_ = true;
  return Taken::kDeliver;
}

std::string StreamContinuation::DifferenceOf(const v1::GenerateStarted& started) const {
  if (started.fingerprint() != fingerprint_) {
    return fmt::format("its fingerprint is {}, the stream's is {}", started.fingerprint(),
                       fingerprint_);
  }
  return fmt::format("its prompt has {} tokens, the stream's has {}", started.prompt_token_count(),
                     prompt_tokens_);
}

absl::StatusOr<StreamContinuation::Taken> StreamContinuation::TakePrompt(
    v1::GeneratePrompt* prompt) {
  const uint64_t end = uint64_t{prompt->offset()} + static_cast<uint64_t>(prompt->tokens_size());
  if (prompt->offset() > prompt_delivered_) {
    return absl::InternalError(fmt::format("the server sent prompt token {} where {} comes next",
                                           prompt->offset(), prompt_delivered_));
  }
  if (end <= prompt_delivered_) return Taken::kDrop;
  prompt->mutable_tokens()->DeleteSubrange(0,
                                           static_cast<int>(prompt_delivered_ - prompt->offset()));
  prompt->set_offset(static_cast<uint32_t>(prompt_delivered_));
  prompt_delivered_ = end;
  return Taken::kDeliver;
}

absl::StatusOr<StreamContinuation::Taken> StreamContinuation::TakeTokens(
    v1::GenerateTokens* tokens) {
  const auto found = OutputOf(tokens->output_index());
  if (!found.ok()) return found.status();
  Output& output = **found;
  if (absl::Status status = TakeIds(tokens, &output); !status.ok()) return status;

  std::string& text = *tokens->mutable_text();
  const uint64_t text_bytes = text.size();
  text.erase(0, Repeated(text_bytes, output.call_text_bytes, output.text_bytes));
  output.call_text_bytes += text_bytes;
  output.text_bytes = std::max(output.text_bytes, output.call_text_bytes);

  TakeRegions(tokens->mutable_regions(), &output);
  HideIds(tokens);
  if (tokens->tokens().empty() && tokens->text().empty() && tokens->regions().empty()) {
    return Taken::kDrop;
  }
  if (output.finished) {
    return absl::InternalError(
        fmt::format("the server sent tokens after the end of output {}", tokens->output_index()));
  }
  tokens->set_position(prompt_tokens_ + output.announced);
  output.announced = output.ids.size();
  return Taken::kDeliver;
}

// Leaves only new tokens in `tokens`.
absl::Status StreamContinuation::TakeIds(v1::GenerateTokens* tokens, Output* output) const {
  if (tokens->position() != prompt_tokens_ + output->call_tokens) {
    return absl::InternalError(
        fmt::format("the server sent token {} of output {} where {} comes next", tokens->position(),
                    tokens->output_index(), prompt_tokens_ + output->call_tokens));
  }
  const uint64_t count = static_cast<uint64_t>(tokens->tokens_size());
  const uint64_t repeated = Repeated(count, output->call_tokens, output->ids.size());
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t id = tokens->tokens(static_cast<int>(i)).id();
    if (i >= repeated) {
      output->ids.push_back(id);
    } else if (output->ids[output->call_tokens + i] != id) {
      return absl::InternalError(fmt::format(
          "the replica that took over sent token {} at position {} where another was received", id,
          tokens->position() + i));
    }
  }
  output->call_tokens += count;
  tokens->mutable_tokens()->DeleteSubrange(0, static_cast<int>(repeated));
  return absl::OkStatus();
}

// Removes the delivered parts of `events`.
void StreamContinuation::TakeRegions(RegionEvents* events, Output* output) const {
  int kept = 0;
  for (int i = 0; i < events->size(); ++i) {
    if (TakeRegion(events->Mutable(i), output)) events->SwapElements(kept++, i);
  }
  events->DeleteSubrange(kept, events->size() - kept);
}

// Removes the delivered parts of `event`; true if something new is left.
bool StreamContinuation::TakeRegion(v1::RegionEvent* event, Output* output) const {
  RegionPosition& call = output->call_regions;
  RegionPosition& delivered = output->regions;
  if (event->has_started() || event->has_finished()) {
    call = {call.borders + 1, 0, 0};
    if (call.borders <= delivered.borders) return false;
    delivered = call;
    return true;
  }
  const bool is_old = call.borders < delivered.borders;
  const auto take = [is_old](std::string* text, uint64_t* from, uint64_t* end) {
    const uint64_t bytes = text->size();
    text->erase(0, is_old ? bytes : Repeated(bytes, *from, *end));
    *from += bytes;
    if (!is_old) *end = std::max(*end, *from);
    return !text->empty();
  };
  if (event->has_marker()) {
    return take(event->mutable_marker(), &call.text_bytes, &delivered.text_bytes);
  }
  if (!event->has_delta()) return calls_ == 1;  // from a newer server; it may be a repetition
  v1::RegionEvent::Delta& delta = *event->mutable_delta();
  const bool has_text = take(delta.mutable_text(), &call.text_bytes, &delivered.text_bytes);
  const bool has_arguments =
      take(delta.mutable_arguments_json(), &call.arguments_bytes, &delivered.arguments_bytes);
  return has_text || has_arguments;
}

void StreamContinuation::HideIds(v1::GenerateTokens* tokens) {
  if (ids_wanted_) return;
  // A server without a tokenizer always sends ids, and nothing else.
  has_tokenizer_ = has_tokenizer_ || !tokens->text().empty() ||
                   std::any_of(tokens->tokens().begin(), tokens->tokens().end(),
                               [](const v1::TokenInfo& token) { return !token.bytes().empty(); });
  if (has_tokenizer_) tokens->clear_tokens();
}

absl::StatusOr<StreamContinuation::Taken> StreamContinuation::TakeFinished(
    v1::GenerateFinished* finished) {
  const auto found = OutputOf(finished->output_index());
  if (!found.ok()) return found.status();
  Output& output = **found;
  // With a time limit the second attempt may produce less.
  if (finished->reason() != v1::FINISH_REASON_TIME_LIMIT &&
      (output.call_tokens < output.ids.size() || output.call_text_bytes < output.text_bytes)) {
    return absl::InternalError(
        fmt::format("the replica that took over ended output {} after {} tokens, {} were received",
                    finished->output_index(), output.call_tokens, output.ids.size()));
  }
  TakeRegions(finished->mutable_regions(), &output);
  if (std::exchange(output.finished, true)) return Taken::kDrop;
  return Taken::kDeliver;
}

// Cached tokens are taken from `started`. A replica counts generated tokens from the first of the
// output, unless it ran out of time.
void StreamContinuation::TakeSummary(v1::GenerateSummary* summary) const {
  if (calls_ == 1) return;
  uint64_t received = 0;
  for (const Output& output : outputs_) received += output.ids.size();
  v1::Usage& usage = *summary->mutable_usage();
  usage.set_cached_prompt_tokens(cached_prompt_tokens_);
  usage.set_completion_tokens(std::max(usage.completion_tokens(), received));
}

absl::StatusOr<StreamContinuation::Output*> StreamContinuation::OutputOf(uint32_t index) {
  if (index < outputs_.size()) return &outputs_[index];
  return absl::InternalError(
      fmt::format("the server sent output {}, announced were {}", index, outputs_.size()));
}

}  // namespace tlm::client
