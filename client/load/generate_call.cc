#include "client/load/generate_call.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/status.h"

namespace tlm::bench {
namespace {

// Farther than any run, near enough for a clock's arithmetic.
constexpr double kFarSeconds = 1e8;

}  // namespace

double Seconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

TimePoint After(TimePoint from, double seconds) {
  const std::chrono::duration<double> span(std::min(seconds, kFarSeconds));
  return from + std::chrono::duration_cast<SteadyClock::duration>(span);
}

GenerateCall::GenerateCall(v1::LanguageModel::Stub& stub, grpc::CompletionQueue& queue,
                           const PlannedRequest& request, TimePoint due, Listener& listener)
    : listener_(listener) {
  record_.due = due;
  record_.sent = SteadyClock::now();
  record_.prompt_tokens = request.prompt_tokens;
  record_.wanted_tokens = request.message.stopping().max_new_tokens();
  if (std::isfinite(request.deadline_seconds)) {
    const TimePoint deadline = After(due, request.deadline_seconds);
    context_.set_deadline(std::chrono::system_clock::now() + (deadline - record_.sent));
  }
  reader_ = stub.PrepareAsyncGenerate(&context_, request.message, &queue);
  reader_->StartCall(this);
}

void GenerateCall::OnEvent(bool ok) {
  if (awaits_ == Awaits::kStatus) return OnStatus();
  if (awaits_ == Awaits::kMessage && ok) OnMessage();
  if (ok) return ReadNext();
  awaits_ = Awaits::kStatus;
  reader_->Finish(&status_, this);
}

void GenerateCall::ReadNext() {
  awaits_ = Awaits::kMessage;
  reader_->Read(&response_, this);
}

void GenerateCall::OnMessage() {
  if (response_.has_started()) {
    record_.started = true;
    record_.cached_prompt_tokens = response_.started().cached_prompt_tokens();
  }
  const int64_t tokens = response_.tokens().tokens_size();
  if (tokens == 0) return;
  const TimePoint now = SteadyClock::now();
  if (record_.first_token.has_value()) {
    record_.gaps.push_back(static_cast<float>(Seconds(record_.last_token, now)));
  } else {
    record_.first_token = now;
  }
  record_.last_token = now;
  record_.tokens += tokens;
  listener_.OnTokens(*this, tokens);
}

void GenerateCall::OnStatus() {
  record_.done = SteadyClock::now();
  record_.code = status_.error_code();
  if (!status_.ok()) {
    const client::ErrorDetails details = client::DetailsOf(client::FromGrpcStatus(status_));
    record_.reason = details.reason;
    if (details.retry_delay.has_value()) {
      record_.retry_seconds = absl::ToDoubleSeconds(*details.retry_delay);
    }
  }
  listener_.OnDone(*this);
}

}  // namespace tlm::bench
