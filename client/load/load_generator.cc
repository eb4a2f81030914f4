#include "client/load/load_generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tlm::load {
namespace {

// With this, a refused caller neither hammers the server nor leaves the loop.
constexpr double kShortestRetry = 0.01;
constexpr double kLongestRetry = 1.0;
constexpr std::chrono::milliseconds kProgressInterval{100};

std::chrono::system_clock::time_point OnSystemClock(TimePoint time) {
  return std::chrono::system_clock::now() + (time - SteadyClock::now());
}

double PauseAfter(const CallRecord& call) {
  if (call.ok()) return 0;
  return std::clamp(call.retry_seconds.value_or(0), kShortestRetry, kLongestRetry);
}

}  // namespace

LoadGenerator::LoadGenerator(Connections& connections, RequestSource requests,
                             const LoadOptions& options, LoadListener& listener)
    : connections_(connections),
      requests_(std::move(requests)),
      options_(options),
      listener_(listener),
      arrivals_(options.seed) {}

LoadGenerator::~LoadGenerator() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

LoadWindow LoadGenerator::Run(const client::CancelToken* cancel) {
  cancel_ = cancel;
  const TimePoint now = SteadyClock::now();
  window_.begin = After(now, options_.warmup_seconds);
  window_.end = After(window_.begin, options_.seconds);
  const int64_t first = options_.rate ? 1 : options_.concurrency;
  for (int64_t i = 0; i < first; ++i) due_.push(now);

  Offer();
  draining_ = true;
  if (!options_.requests || Interrupted()) CloseWindow();
  Drain();
  CloseWindow();
  return window_;
}

bool LoadGenerator::Offering(TimePoint now) const {
  return now < window_.end &&
         (!options_.requests || window_.sent + window_.not_sent < *options_.requests);
}

void LoadGenerator::Offer() {
  for (TimePoint now = SteadyClock::now(); Offering(now) && !Interrupted();
       now = SteadyClock::now()) {
    if (!window_open_ && now >= window_.begin) {
      window_open_ = true;
      listener_.OnWindow(true);
    }
    SendDue();
    ShowProgress(now);
    TimePoint wake = std::min(window_.end, now + kProgressInterval);
    if (!due_.empty()) wake = std::min(wake, due_.top());
    if (!window_open_) wake = std::min(wake, window_.begin);
    HandleEvent(wake);
  }
}

void LoadGenerator::Drain() {
  const TimePoint end = After(SteadyClock::now(), options_.drain_seconds);
  bool cancelled = false;
  while (!in_flight_.empty()) {
    const TimePoint now = SteadyClock::now();
    if (Interrupted() && !window_.interrupted) {
      window_.interrupted = true;
      CloseWindow();
    }
    if (!cancelled && (window_.interrupted || now >= end)) {
      CancelAll();
      cancelled = true;
    }
    ShowProgress(now);
    HandleEvent(now + kProgressInterval);
  }
  window_.interrupted = Interrupted();
}

void LoadGenerator::CancelAll() {
  for (const auto& [call, owner] : in_flight_) call->Cancel();
}

void LoadGenerator::SendDue() {
  while (!due_.empty() && due_.top() <= SteadyClock::now() && Offering(SteadyClock::now())) {
    const TimePoint due = due_.top();
    due_.pop();
    Send(due);
    if (!options_.rate) continue;
    std::exponential_distribution<double> gap(*options_.rate);
    due_.push(After(due, gap(arrivals_)));
  }
}

void LoadGenerator::Send(TimePoint due) {
  const bool has_room = static_cast<int64_t>(in_flight_.size()) < options_.concurrency;
  if (window_.Contains(due)) ++(has_room ? window_.sent : window_.not_sent);
  if (!has_room) return;
  auto call =
      std::make_unique<GenerateCall>(connections_, queue_, requests_(next_request_++), due, *this);
  GenerateCall* const key = call.get();
  in_flight_.emplace(key, std::move(call));
}

void LoadGenerator::HandleEvent(TimePoint until) {
  void* tag = nullptr;
  bool ok = false;
  const auto event = queue_.AsyncNext(&tag, &ok, OnSystemClock(until));
  if (event == grpc::CompletionQueue::GOT_EVENT) static_cast<GenerateCall*>(tag)->OnEvent(ok);
}

void LoadGenerator::OnTokens(GenerateCall& call, int64_t tokens) {
  const CallRecord& record = call.record();
  if (window_.Contains(record.last_token)) {
    ++window_.events;
    window_.output_tokens += tokens;
    if (record.gaps.empty()) window_.prompt_tokens += record.prompt_tokens;
  }
  listener_.OnTokens(record, tokens, window_);
}

void LoadGenerator::OnDone(GenerateCall& call) {
  CallRecord record = call.TakeRecord();
  in_flight_.erase(&call);
  if (window_.Contains(record.due)) ++ended_;
  if (!options_.rate && !draining_) due_.push(After(record.done, PauseAfter(record)));
  listener_.OnDone(std::move(record), window_);
}

void LoadGenerator::CloseWindow() {
  const TimePoint now = SteadyClock::now();
  // If interrupted during the warm-up, nothing was measured.
  window_.begin = std::min(window_.begin, now);
  window_.end = std::min(window_.end, now);
  if (std::exchange(window_open_, false)) listener_.OnWindow(false);
}

void LoadGenerator::ShowProgress(TimePoint now) {
  if (now < next_progress_) return;
  next_progress_ = now + kProgressInterval;
  LoadProgress progress;
  progress.warming_up = now < window_.begin;
  progress.draining = draining_;
  progress.in_flight = static_cast<int64_t>(in_flight_.size());
  if (std::isfinite(options_.seconds)) {
    progress.done = Seconds(window_.begin, now) / options_.seconds;
  }
  if (options_.requests) {
    progress.done = std::max(progress.done, static_cast<double>(ended_ + window_.not_sent) /
                                                static_cast<double>(*options_.requests));
  }
  progress.done = std::clamp(progress.done, 0.0, 1.0);
  listener_.OnProgress(progress, window_);
}

}  // namespace tlm::load
