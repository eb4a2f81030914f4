// The program's metrics in Prometheus' text format.
#ifndef TLM_CLIENT_OPENAI_ROUTES_FRONT_METRICS_H_
#define TLM_CLIENT_OPENAI_ROUTES_FRONT_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "client/openai/mapping/answer.h"

namespace tlm::openai {

// Thread-safe.
class FrontMetrics {
 public:
  FrontMetrics();

  // `route` is a path of the table of routes, or "other": labels are bounded.
  void CountRequest(const std::string& route, int status);
  void CountTokens(const TokenCounts& counts);
  void ObserveFirstToken(absl::Duration time);

  // Counts generated tokens as they come.
  void NoteTokens(size_t count, absl::Time now);
  // Returns the generated tokens per second over the last kRateSeconds whole seconds.
  static constexpr int kRateSeconds = 5;
  double TokensPerSecond(absl::Time now) const;

  // States that are read at each scrape.
  void SetState(size_t connections, size_t requests, size_t calls, size_t queued_calls);

  std::string Text() const;

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& tokens_;
  prometheus::Histogram& first_token_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& running_requests_;
  prometheus::Gauge& running_calls_;
  prometheus::Gauge& queued_calls_;
  mutable std::mutex mutex_;
  std::map<int64_t, size_t> tokens_in_;  // by second, the last ones; guarded by mutex_
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_FRONT_METRICS_H_
