// Reports the server's load to clients that spread their calls by it.
#ifndef TLM_SERVER_RPC_CALL_LOAD_REPORTER_H_
#define TLM_SERVER_RPC_CALL_LOAD_REPORTER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/batching/engine.h"

namespace tlm {

// Trailing metadata of a call: a serialized xds.data.orca.v3.OrcaLoadReport.
inline constexpr char kLoadReportKey[] = "endpoint-load-metrics-bin";

// Thread-safe.
class LoadReporter {
 public:
  // A report is made again once it is this old: many calls may end within a millisecond.
  static constexpr absl::Duration kMaxAge = absl::Milliseconds(10);
  // The load is averaged over about this time, so that short calls do not make it jump.
  static constexpr absl::Duration kMemory = absl::Seconds(1);
  // An idle server's load, in requests. Clients ignore reports without any utilization.
  static constexpr double kIdleRequests = 0.5;

  // All references outlive the reporter; `max_running_requests` is the engine's.
  LoadReporter(const Engine& engine, int64_t max_running_requests, Clock& clock)
      : engine_(engine), max_running_requests_(max_running_requests), clock_(clock) {}

  // Returns a serialized xds.data.orca.v3.OrcaLoadReport:
  //   application_utilization  running and waiting requests, plus kIdleRequests, divided by
  //                            max_running_requests; above 1 while more wait than can run
  //   rps_fractional           always 1. Clients weigh a server by rps / utilization, which is fair
  //                            for calls of equal cost; the costs of a language model's calls
  //                            differ by orders of magnitude. So the weight is the inverse of the
  //                            load.
  //   named_metrics            kv_cache_usage_perc (0 to 1), num_requests_running,
  //                            num_requests_waiting: the latest, as in the metrics of these names
  std::string Serialized();

 private:
  void Refresh(absl::Time now) TLM_REQUIRES(mutex_);

  const Engine& engine_;
  const int64_t max_running_requests_;
  Clock& clock_;
  Mutex mutex_;
  absl::Time made_ TLM_GUARDED_BY(mutex_) = absl::InfinitePast();
  double requests_ TLM_GUARDED_BY(mutex_) = 0;  // running and waiting, averaged
  std::string report_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_LOAD_REPORTER_H_
