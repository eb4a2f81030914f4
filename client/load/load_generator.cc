#include "client/load/load_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/benchmarks/load/process.h"

namespace tlm::bench {
namespace {

// A caller of a closed loop that was refused comes back when the server said, within reason: it
// neither hammers the server nor leaves the loop.
constexpr double kShortestRetry = 0.01;
constexpr double kLongestRetry = 1.0;

std::string TitleOf(const LoadPoint& point) {
  return point.loop == Loop::kClosed ? fmt::format("{:g} callers", point.load)
                                     : fmt::format("{:.4g} requests/s", point.load);
}

std::chrono::system_clock::time_point OnSystemClock(TimePoint time) {
  return std::chrono::system_clock::now() + (time - SteadyClock::now());
}

}  // namespace

LoadGenerator::LoadGenerator(Target& target, const Workload& workload, const RunLimits& limits,
                             std::function<double()> server_cpu)
    : target_(target),
      workload_(workload),
      limits_(limits),
      server_cpu_(server_cpu != nullptr ? std::move(server_cpu) : [] { return 0.0; }) {}

LoadGenerator::~LoadGenerator() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

RunRecord LoadGenerator::Run(const LoadPoint& point, uint64_t run) {
  ProgressBar progress(TitleOf(point));
  Begin(point, run);
  OfferLoad(progress);
  if (limits_.requests == 0) CloseWindow();
  Drain(progress);
  if (limits_.requests != 0) CloseWindow();
  return std::move(run_);
}

void LoadGenerator::Begin(const LoadPoint& point, uint64_t run) {
  const TimePoint now = SteadyClock::now();
  run_ = {.point = point, .begin = After(now, limits_.warmup_seconds)};
  run_.end = limits_.requests == 0 ? After(run_.begin, limits_.seconds) : TimePoint::max();
  run_number_ = run;
  next_request_ = 0;
  window_open_ = false;
  measured_sent_ = 0;
  due_ = Due();
  // Arrivals have numbers of their own, so that rates and loops do not change what is asked.
  random_.seed(workload_.options().seed ^ (run + 1) * 0x9e3779b97f4a7c15u);
  const auto first = point.loop == Loop::kClosed ? static_cast<int64_t>(point.load) : 1;
  for (int64_t i = 0; i < first; ++i) due_.push(now);
}

bool LoadGenerator::Offering() const {
  return limits_.requests == 0 ? SteadyClock::now() < run_.end : measured_sent_ < limits_.requests;
}

void LoadGenerator::OfferLoad(ProgressBar& progress) {
  while (Offering()) {
    const TimePoint now = SteadyClock::now();
    if (!window_open_ && now >= run_.begin) OpenWindow();
    SendDue();
    TimePoint wake = std::min(run_.end, now + ProgressBar::kInterval);
    if (!due_.empty()) wake = std::min(wake, due_.top());
    if (!window_open_) wake = std::min(wake, run_.begin);
    HandleEvent(wake);
    progress.Show(limits_.requests == 0
                      ? Seconds(run_.begin, now) / limits_.seconds
                      : static_cast<double>(measured_sent_) / static_cast<double>(limits_.requests),
                  [this] { return Situation(); });
  }
}

void LoadGenerator::Drain(ProgressBar& progress) {
  const TimePoint end = After(SteadyClock::now(), limits_.drain_seconds);
  bool cancelled = false;
  while (!in_flight_.empty()) {
    const TimePoint now = SteadyClock::now();
    if (!cancelled && now >= end) {
      CancelAll();
      cancelled = true;
    }
    HandleEvent(now + ProgressBar::kInterval);
    progress.Show(1, [this] { return Situation(); });
  }
}

void LoadGenerator::CancelAll() {
  for (const auto& [call, owner] : in_flight_) call->Cancel();
}

void LoadGenerator::SendDue() {
  while (!due_.empty() && due_.top() <= SteadyClock::now() && Offering()) {
    const TimePoint due = due_.top();
    due_.pop();
    Send(due);
    if (run_.point.loop == Loop::kClosed) continue;
    std::exponential_distribution<double> gap(run_.point.load);
    due_.push(After(due, gap(random_)));
  }
}

void LoadGenerator::Send(TimePoint due) {
  if (InWindow(due)) ++measured_sent_;
  if (static_cast<int64_t>(in_flight_.size()) >= limits_.max_in_flight) {
    if (InWindow(due)) ++run_.not_sent;
    return;
  }
  auto call = std::make_unique<GenerateCall>(
      target_.NextStub(), queue_, workload_.Make(run_number_, next_request_++), due, *this);
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
  if (!InWindow(call.record().last_token)) return;
  ++run_.window_events;
  run_.window_output_tokens += tokens;
}

void LoadGenerator::OnDone(GenerateCall& call) {
  CallRecord record = call.TakeRecord();
  in_flight_.erase(&call);
  if (run_.point.loop == Loop::kClosed) {
    const double pause =
        record.code == grpc::StatusCode::OK
            ? 0
            : std::clamp(record.retry_seconds.value_or(0), kShortestRetry, kLongestRetry);
    due_.push(After(record.done, pause));
  }
  run_.calls.push_back(std::move(record));
}

void LoadGenerator::OpenWindow() {
  window_open_ = true;
  run_.client_cpu_seconds = -OwnCpuSeconds();
  run_.server_cpu_seconds = -server_cpu_();
}

void LoadGenerator::CloseWindow() {
  run_.end = std::min(run_.end, SteadyClock::now());
  run_.client_cpu_seconds += OwnCpuSeconds();
  run_.server_cpu_seconds += server_cpu_();
}

std::string LoadGenerator::Situation() const {
  return fmt::format("{} in flight, {} over", in_flight_.size(), run_.calls.size());
}

}  // namespace tlm::bench
