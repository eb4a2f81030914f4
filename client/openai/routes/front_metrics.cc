#include "client/openai/routes/front_metrics.h"

#include <prometheus/text_serializer.h>

namespace tlm::openai {
namespace {

prometheus::Gauge& AddGauge(prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add({});
}

}  // namespace

FrontMetrics::FrontMetrics()
    : requests_(prometheus::BuildCounter()
                    .Name("tlm_openai_requests_total")
                    .Help("HTTP requests that were answered, by route and status; 499 = the "
                          "client went away")
                    .Register(registry_)),
      tokens_(prometheus::BuildCounter()
                  .Name("tlm_openai_tokens_total")
                  .Help("Tokens of answered requests, by kind: prompt, cached or completion; "
                        "cached ones are prompt tokens, too")
                  .Register(registry_)),
      first_token_(
          prometheus::BuildHistogram()
              .Name("tlm_openai_time_to_first_token_seconds")
              .Help("Time from the end of a request's body to its first token")
              .Register(registry_)
              .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.0025, 0.005, 0.01, 0.025,
                                                               0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
                                                               25, 50, 100})),
      connections_(AddGauge(&registry_, "tlm_openai_connections", "Open connections")),
      running_requests_(AddGauge(&registry_, "tlm_openai_running_requests",
                                 "HTTP requests that have not been answered to the end")),
      running_calls_(
          AddGauge(&registry_, "tlm_openai_running_calls", "Threads that run a call to a server")),
      queued_calls_(AddGauge(&registry_, "tlm_openai_queued_calls",
                             "Calls that wait for one of the --max_calls threads")) {}

void FrontMetrics::CountRequest(const std::string& route, int status) {
  requests_.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
}

void FrontMetrics::CountTokens(const TokenCounts& counts) {
  tokens_.Add({{"kind", "prompt"}}).Increment(static_cast<double>(counts.prompt));
  tokens_.Add({{"kind", "cached"}}).Increment(static_cast<double>(counts.cached));
  tokens_.Add({{"kind", "completion"}}).Increment(static_cast<double>(counts.completion));
}

void FrontMetrics::ObserveFirstToken(absl::Duration time) {
  first_token_.Observe(absl::ToDoubleSeconds(time));
}

void FrontMetrics::NoteTokens(size_t count, absl::Time now) {
  const int64_t second = absl::ToUnixSeconds(now);
  std::lock_guard<std::mutex> lock(mutex_);
  tokens_in_[second] += count;
  tokens_in_.erase(tokens_in_.begin(), tokens_in_.lower_bound(second - kRateSeconds));
}

double FrontMetrics::TokensPerSecond(absl::Time now) const {
  const int64_t second = absl::ToUnixSeconds(now);
  std::lock_guard<std::mutex> lock(mutex_);
  size_t tokens = 0;
  const auto end = tokens_in_.lower_bound(second);
  for (auto it = tokens_in_.lower_bound(second - kRateSeconds); it != end; ++it) {
    tokens += it->second;
  }
  return static_cast<double>(tokens) / kRateSeconds;
}

void FrontMetrics::SetState(size_t connections, size_t requests, size_t calls,
                            size_t queued_calls) {
  connections_.Set(static_cast<double>(connections));
  running_requests_.Set(static_cast<double>(requests));
  running_calls_.Set(static_cast<double>(calls));
  queued_calls_.Set(static_cast<double>(queued_calls));
}

std::string FrontMetrics::Text() const {
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace tlm::openai
