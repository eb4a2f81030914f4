#include "tests/benchmarks/load/stall_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cpp/status.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/workload.h"

namespace tlm::bench {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};
// The output of the long prompt: a few tokens, so that decoding it does not disturb.
constexpr int64_t kArrivalOutputTokens = 4;

Mixture Exactly(int64_t count) { return Counts(fmt::format("{}", count)).mixture; }

}  // namespace

StallProbe::StallProbe(Target& target, const StallOptions& options)
    : target_(target), options_(options) {}

StallProbe::~StallProbe() {
  ending_ = true;
  for (const auto& stream : streams_) stream->Cancel();
  if (arrival_ != nullptr) arrival_->Cancel();
  void* tag = nullptr;
  bool ok = false;
  while (open_calls_ > 0 && queue_.Next(&tag, &ok))
    static_cast<load::GenerateCall*>(tag)->OnEvent(ok);
  queue_.Shutdown();
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::StatusOr<Stall> StallProbe::Measure(uint64_t repetition) {
  TLM_RETURN_IF_ERROR(StartStreams(repetition));
  TLM_RETURN_IF_ERROR(RunFor(options_.settle_seconds));
  const load::TimePoint begin = load::SteadyClock::now();
  TLM_RETURN_IF_ERROR(RunFor(options_.undisturbed_seconds));
  TLM_ASSIGN_OR_RETURN(arrival_, Send(options_.prompt_tokens, kArrivalOutputTokens, repetition,
                                      static_cast<uint64_t>(options_.streams)));
  const load::CallRecord& arrival = arrival_->record();
  TLM_RETURN_IF_ERROR(RunUntil([&] { return arrival.first_token.has_value(); }));
  const load::TimePoint first_token = *arrival.first_token;
  // A gap that the prompt caused may end after its first token.
  TLM_RETURN_IF_ERROR(RunUntil([&] { return AllStreamsHaveTokensSince(first_token); }));
  Stall stall;
  stall.undisturbed = Summarize(GapsEnding(begin, arrival.due));
  stall.disturbed = Summarize(GapsTouching(arrival.due, first_token));
  if (stall.undisturbed.count == 0 || stall.disturbed.count == 0) {
    return FailedPrecondition("the streams got no tokens while they were measured");
  }
  stall.ttft_seconds = load::Seconds(arrival.due, first_token);
  stall.undisturbed_tokens_per_second = TokensPerSecond(begin, arrival.due);
  stall.disturbed_tokens_per_second = TokensPerSecond(arrival.due, first_token);
  return stall;
}

absl::Status StallProbe::StartStreams(uint64_t repetition) {
  for (int64_t i = 0; i < options_.streams; ++i) {
    TLM_ASSIGN_OR_RETURN(streams_.emplace_back(),
                         Send(options_.stream_prompt_tokens, options_.stream_output_tokens,
                              repetition, static_cast<uint64_t>(i)));
  }
  return RunUntil([this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const auto& stream) { return stream->record().first_token.has_value(); });
  });
}

absl::StatusOr<std::unique_ptr<load::GenerateCall>> StallProbe::Send(int64_t prompt_tokens,
                                                                     int64_t output_tokens,
                                                                     uint64_t repetition,
                                                                     uint64_t index) {
  TLM_ASSIGN_OR_RETURN(const Workload workload,
                       Workload::Create({.prompt_tokens = Exactly(prompt_tokens),
                                         .output_tokens = Exactly(output_tokens),
                                         .deadline = Durations("inf").mixture,
                                         .priority = Exactly(0),
                                         .seed = options_.seed},
                                        target_.model));
  const load::PlannedRequest request = workload.Make(repetition, index);
  ++open_calls_;
  return std::make_unique<load::GenerateCall>(target_.connections, queue_, request,
                                              load::SteadyClock::now(), *this);
}

absl::Status StallProbe::RunUntil(const std::function<bool()>& condition) {
  const load::TimePoint end = load::After(load::SteadyClock::now(), options_.timeout_seconds);
  while (failure_.ok() && !condition()) {
    if (load::SteadyClock::now() > end) {
      return DeadlineExceeded("the server took longer than {} s", options_.timeout_seconds);
    }
    void* tag = nullptr;
    bool ok = false;
    const auto event =
        queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kPollInterval);
    if (event == grpc::CompletionQueue::GOT_EVENT)
      static_cast<load::GenerateCall*>(tag)->OnEvent(ok);
  }
  return failure_;
}

absl::Status StallProbe::RunFor(double seconds) {
  const load::TimePoint end = load::After(load::SteadyClock::now(), seconds);
  return RunUntil([end] { return load::SteadyClock::now() >= end; });
}

void StallProbe::OnTokens(load::GenerateCall& call, int64_t tokens) {
  const load::CallRecord& record = call.record();
  if (&call == arrival_.get() || record.gaps.empty()) return;
  gaps_.push_back({.begin = load::After(record.last_token, -record.gaps.back()),
                   .end = record.last_token,
                   .tokens = tokens});
}

void StallProbe::OnDone(load::GenerateCall& call) {
  --open_calls_;
  // The long prompt may end before the streams are measured.
  if (ending_ || !failure_.ok()) return;
  const load::CallRecord& record = call.record();
  if (&call == arrival_.get() && record.code == absl::StatusCode::kOk) return;
  failure_ = FailedPrecondition(
      "a call ended with {} after {} of {} tokens, before everything was measured",
      client::CodeName(record.code), record.tokens, record.wanted_tokens);
}

bool StallProbe::AllStreamsHaveTokensSince(load::TimePoint time) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [time](const auto& stream) { return stream->record().last_token >= time; });
}

load::LatencyHistogram StallProbe::GapsEnding(load::TimePoint begin, load::TimePoint end) const {
  load::LatencyHistogram seconds;
  for (const Gap& gap : gaps_) {
    if (gap.end > begin && gap.end <= end) seconds.Add(load::Seconds(gap.begin, gap.end));
  }
  return seconds;
}

load::LatencyHistogram StallProbe::GapsTouching(load::TimePoint begin, load::TimePoint end) const {
  load::LatencyHistogram seconds;
  for (const Gap& gap : gaps_) {
    if (gap.end > begin && gap.begin < end) seconds.Add(load::Seconds(gap.begin, gap.end));
  }
  return seconds;
}

double StallProbe::TokensPerSecond(load::TimePoint begin, load::TimePoint end) const {
  int64_t tokens = 0;
  for (const Gap& gap : gaps_) {
    if (gap.end > begin && gap.end <= end) tokens += gap.tokens;
  }
  return static_cast<double>(tokens) / load::Seconds(begin, end);
}

}  // namespace tlm::bench
