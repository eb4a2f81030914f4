#include "tests/benchmarks/load/metrics.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "client/cpp/status.h"

namespace tlm::bench {
namespace {

double Ttft(const CallRecord& call) { return Seconds(call.due, *call.first_token); }
double EndToEnd(const CallRecord& call) { return Seconds(call.due, call.done); }

bool HasMeanGap(const CallRecord& call) { return call.tokens > 1 && !call.gaps.empty(); }
double MeanGap(const CallRecord& call) {
  return Seconds(*call.first_token, call.last_token) / static_cast<double>(call.tokens - 1);
}

bool IsGood(const CallRecord& call, const ServiceLevel& level) {
  return OutcomeOf(call) == Outcome::kCompleted && Ttft(call) <= level.ttft_seconds &&
         (!HasMeanGap(call) || MeanGap(call) <= level.itl_seconds);
}

// Samples of the requests that were due in the window.
struct CohortSamples {
  std::vector<double> ttft, inter_token, per_token, end_to_end, refusal, lag;
  int64_t started_prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;

  void Add(const CallRecord& call) {
    lag.push_back(Seconds(call.due, call.sent));
    if (call.first_token.has_value()) ttft.push_back(Ttft(call));
    if (HasMeanGap(call)) per_token.push_back(MeanGap(call));
    inter_token.insert(inter_token.end(), call.gaps.begin(), call.gaps.end());
    if (OutcomeOf(call) == Outcome::kCompleted) end_to_end.push_back(EndToEnd(call));
    if (OutcomeOf(call) == Outcome::kRefused) refusal.push_back(EndToEnd(call));
    if (!call.started) return;
    started_prompt_tokens += call.prompt_tokens;
    cached_prompt_tokens += call.cached_prompt_tokens;
  }
};

void SummarizeSamples(CohortSamples samples, PointMetrics* metrics) {
  metrics->ttft = Summarize(std::move(samples.ttft));
  metrics->inter_token = Summarize(std::move(samples.inter_token));
  metrics->per_token = Summarize(std::move(samples.per_token));
  metrics->end_to_end = Summarize(std::move(samples.end_to_end));
  metrics->refusal = Summarize(std::move(samples.refusal));
  metrics->lag = Summarize(std::move(samples.lag));
  if (samples.started_prompt_tokens > 0) {
    metrics->cached_prompt_share = static_cast<double>(samples.cached_prompt_tokens) /
                                   static_cast<double>(samples.started_prompt_tokens);
  }
}

void CountOutcome(const CallRecord& call, const ServiceLevel& level, PointMetrics* metrics) {
  ++metrics->offered;
  switch (OutcomeOf(call)) {
    case Outcome::kCompleted:
      ++metrics->completed;
      break;
    case Outcome::kRefused:
      ++metrics->refused;
      break;
    case Outcome::kFailed:
      ++metrics->failed;
      break;
  }
  if (IsGood(call, level)) ++metrics->good;
}

std::string CodeOf(const CallRecord& call) {
  if (call.code == grpc::StatusCode::OK) return "OK, wrong length";
  return client::CodeName(static_cast<absl::StatusCode>(call.code));
}

// Collects the endings of requests that did not succeed.
class Endings {
 public:
  void Add(const CallRecord& call) {
    Samples& samples = samples_[{OutcomeOf(call), CodeOf(call), call.reason}];
    samples.seconds.push_back(EndToEnd(call));
    if (call.retry_seconds.has_value()) samples.retry_seconds.push_back(*call.retry_seconds);
  }
  void AddNotSent(int64_t count) { not_sent_ = count; }

  std::vector<Ending> MostFrequentFirst() && {
    std::vector<Ending> endings;
    for (auto& [key, samples] : samples_) {
      endings.push_back({.outcome = std::get<Outcome>(key),
                         .code = std::get<1>(key),
                         .reason = std::get<2>(key),
                         .count = static_cast<int64_t>(samples.seconds.size()),
                         .with_retry_time = static_cast<int64_t>(samples.retry_seconds.size()),
                         .seconds = Summarize(std::move(samples.seconds)),
                         .retry_seconds = Summarize(std::move(samples.retry_seconds))});
    }
    if (not_sent_ > 0) {
      endings.push_back({.code = "not sent", .reason = "max_in_flight", .count = not_sent_});
    }
    std::stable_sort(endings.begin(), endings.end(),
                     [](const Ending& a, const Ending& b) { return a.count > b.count; });
    return endings;
  }

 private:
  struct Samples {
    std::vector<double> seconds;
    std::vector<double> retry_seconds;
  };
  std::map<std::tuple<Outcome, std::string, std::string>, Samples> samples_;
  int64_t not_sent_ = 0;
};

// Of what happened between begin and end.
void SetRates(const RunRecord& run, const ServiceLevel& level, PointMetrics* metrics) {
  const auto in_window = [&run](TimePoint time) { return time >= run.begin && time < run.end; };
  int64_t completed = 0;
  int64_t good = 0;
  int64_t prompt_tokens = 0;
  for (const CallRecord& call : run.calls) {
    if (call.first_token.has_value() && in_window(*call.first_token)) {
      prompt_tokens += call.prompt_tokens;
    }
    if (!in_window(call.done) || OutcomeOf(call) != Outcome::kCompleted) continue;
    ++completed;
    if (IsGood(call, level)) ++good;
  }
  const double seconds = metrics->window_seconds;
  metrics->offered_per_second = static_cast<double>(metrics->offered) / seconds;
  metrics->completed_per_second = static_cast<double>(completed) / seconds;
  metrics->good_per_second = static_cast<double>(good) / seconds;
  metrics->events_per_second = static_cast<double>(run.window_events) / seconds;
  metrics->output_tokens_per_second = static_cast<double>(run.window_output_tokens) / seconds;
  metrics->total_tokens_per_second =
      static_cast<double>(run.window_output_tokens + prompt_tokens) / seconds;
  metrics->client_cpus = run.client_cpu_seconds / seconds;
  metrics->server_cpus = run.server_cpu_seconds / seconds;
}

}  // namespace

Outcome OutcomeOf(const CallRecord& call) {
  switch (call.code) {
    case grpc::StatusCode::OK:
      return call.tokens == call.wanted_tokens ? Outcome::kCompleted : Outcome::kFailed;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return call.started ? Outcome::kFailed : Outcome::kRefused;
    case grpc::StatusCode::UNAVAILABLE:  // with a reason it is the server that says so
      return call.started || call.reason.empty() ? Outcome::kFailed : Outcome::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return call.reason == "INFEASIBLE" ? Outcome::kRefused : Outcome::kFailed;
    default:
      return Outcome::kFailed;
  }
}

PointMetrics Measure(const RunRecord& run, const ServiceLevel& level) {
  PointMetrics metrics = {.point = run.point, .window_seconds = Seconds(run.begin, run.end)};
  CohortSamples samples;
  Endings endings;
  for (const CallRecord& call : run.calls) {
    if (call.due < run.begin || call.due >= run.end) continue;
    CountOutcome(call, level, &metrics);
    samples.Add(call);
    if (OutcomeOf(call) != Outcome::kCompleted) endings.Add(call);
  }
  metrics.offered += run.not_sent;
  metrics.failed += run.not_sent;
  endings.AddNotSent(run.not_sent);
  metrics.endings = std::move(endings).MostFrequentFirst();
  SummarizeSamples(std::move(samples), &metrics);
  SetRates(run, level, &metrics);
  return metrics;
}

}  // namespace tlm::bench
