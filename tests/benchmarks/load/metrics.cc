#include "tests/benchmarks/load/metrics.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "client/cpp/status.h"

namespace tlm::bench {
namespace {

double Ttft(const load::CallRecord& call) { return load::Seconds(call.due, *call.first_token); }
double EndToEnd(const load::CallRecord& call) { return load::Seconds(call.due, call.done); }

bool HasMeanGap(const load::CallRecord& call) { return call.tokens > 1 && !call.gaps.empty(); }
double MeanGap(const load::CallRecord& call) {
  return load::Seconds(*call.first_token, call.last_token) / static_cast<double>(call.tokens - 1);
}

bool IsGood(const load::CallRecord& call, const ServiceLevel& level) {
  return OutcomeOf(call) == Outcome::kCompleted && Ttft(call) <= level.ttft_seconds &&
         (!HasMeanGap(call) || MeanGap(call) <= level.itl_seconds);
}

// Samples of the requests scheduled in the window.
struct CohortSamples {
  load::LatencyHistogram ttft, inter_token, per_token, end_to_end, refusal, lag;
  int64_t started_prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;

  void Add(const load::CallRecord& call) {
    lag.Add(load::Seconds(call.due, call.sent));
    if (call.first_token.has_value()) ttft.Add(Ttft(call));
    if (HasMeanGap(call)) per_token.Add(MeanGap(call));
    for (const float gap : call.gaps) inter_token.Add(gap);
    if (OutcomeOf(call) == Outcome::kCompleted) end_to_end.Add(EndToEnd(call));
    if (OutcomeOf(call) == Outcome::kRefused) refusal.Add(EndToEnd(call));
    if (!call.started) return;
    started_prompt_tokens += call.prompt_tokens;
    cached_prompt_tokens += call.cached_prompt_tokens;
  }
};

void SummarizeSamples(const CohortSamples& samples, PointMetrics* metrics) {
  metrics->ttft = Summarize(samples.ttft);
  metrics->inter_token = Summarize(samples.inter_token);
  metrics->per_token = Summarize(samples.per_token);
  metrics->end_to_end = Summarize(samples.end_to_end);
  metrics->refusal = Summarize(samples.refusal);
  metrics->lag = Summarize(samples.lag);
  if (samples.started_prompt_tokens > 0) {
    metrics->cached_prompt_share = static_cast<double>(samples.cached_prompt_tokens) /
                                   static_cast<double>(samples.started_prompt_tokens);
  }
}

void CountOutcome(const load::CallRecord& call, const ServiceLevel& level, PointMetrics* metrics) {
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

std::string CodeOf(const load::CallRecord& call) {
  return call.ok() ? "OK, wrong length" : client::CodeName(call.code);
}

// Collects the endings of requests that did not succeed.
class Endings {
 public:
  void Add(const load::CallRecord& call) {
    Samples& samples = samples_[{OutcomeOf(call), CodeOf(call), call.reason}];
    samples.seconds.Add(EndToEnd(call));
    if (call.retry_seconds.has_value()) samples.retry_seconds.Add(*call.retry_seconds);
  }
  void AddNotSent(int64_t count) { not_sent_ = count; }

  std::vector<Ending> MostFrequentFirst() const {
    std::vector<Ending> endings;
    for (const auto& [key, samples] : samples_) {
      endings.push_back({.outcome = std::get<Outcome>(key),
                         .code = std::get<1>(key),
                         .reason = std::get<2>(key),
                         .count = static_cast<int64_t>(samples.seconds.count()),
                         .with_retry_time = static_cast<int64_t>(samples.retry_seconds.count()),
                         .seconds = Summarize(samples.seconds),
                         .retry_seconds = Summarize(samples.retry_seconds)});
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
    load::LatencyHistogram seconds;
    load::LatencyHistogram retry_seconds;
  };
  std::map<std::tuple<Outcome, std::string, std::string>, Samples> samples_;
  int64_t not_sent_ = 0;
};

// Rates of the events in the window.
void SetRates(const RunRecord& run, const ServiceLevel& level, PointMetrics* metrics) {
  int64_t completed = 0;
  int64_t good = 0;
  for (const load::CallRecord& call : run.calls) {
    if (!run.window.Contains(call.done) || OutcomeOf(call) != Outcome::kCompleted) continue;
    ++completed;
    if (IsGood(call, level)) ++good;
  }
  const double seconds = metrics->window_seconds;
  metrics->offered_per_second = static_cast<double>(metrics->offered) / seconds;
  metrics->completed_per_second = static_cast<double>(completed) / seconds;
  metrics->good_per_second = static_cast<double>(good) / seconds;
  metrics->events_per_second = static_cast<double>(run.window.events) / seconds;
  metrics->output_tokens_per_second = static_cast<double>(run.window.output_tokens) / seconds;
  metrics->total_tokens_per_second =
      static_cast<double>(run.window.output_tokens + run.window.prompt_tokens) / seconds;
  metrics->client_cpus = run.client_cpu_seconds / seconds;
  metrics->server_cpus = run.server_cpu_seconds / seconds;
}

}  // namespace

Outcome OutcomeOf(const load::CallRecord& call) {
  switch (call.code) {
    case absl::StatusCode::kOk:
      return call.tokens == call.wanted_tokens ? Outcome::kCompleted : Outcome::kFailed;
    case absl::StatusCode::kResourceExhausted:
      return call.started ? Outcome::kFailed : Outcome::kRefused;
    case absl::StatusCode::kUnavailable:  // with a reason it comes from the server
      return call.started || call.reason.empty() ? Outcome::kFailed : Outcome::kRefused;
    case absl::StatusCode::kDeadlineExceeded:
      return call.reason == "INFEASIBLE" ? Outcome::kRefused : Outcome::kFailed;
    default:
      return Outcome::kFailed;
  }
}

PointMetrics Measure(const RunRecord& run, const ServiceLevel& level) {
  PointMetrics metrics = {.point = run.point,
                          .window_seconds = load::Seconds(run.window.begin, run.window.end)};
  CohortSamples samples;
  Endings endings;
  for (const load::CallRecord& call : run.calls) {
    if (!run.window.Contains(call.due)) continue;
    CountOutcome(call, level, &metrics);
    samples.Add(call);
    if (OutcomeOf(call) != Outcome::kCompleted) endings.Add(call);
  }
  metrics.offered += run.window.not_sent;
  metrics.failed += run.window.not_sent;
  endings.AddNotSent(run.window.not_sent);
  metrics.endings = endings.MostFrequentFirst();
  SummarizeSamples(samples, &metrics);
  SetRates(run, level, &metrics);
  return metrics;
}

}  // namespace tlm::bench
