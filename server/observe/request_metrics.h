// Records latencies and sizes of requests, in vLLM's buckets and in finer ones.
#ifndef TLM_SERVER_OBSERVE_REQUEST_METRICS_H_
#define TLM_SERVER_OBSERVE_REQUEST_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "server/observe/call_summary.h"
#include "server/observe/metric_families.h"

namespace tlm {

// Limits the values of the label `tenant`: each costs memory here and in the time-series database.
// Thread-safe.
class TenantLabels {
 public:
  static constexpr size_t kMaxTenants = 256;
  static constexpr std::string_view kNoTenant = "-";    // calls without a tenant
  static constexpr std::string_view kOthers = "other";  // for tenants beyond the first kMaxTenants

  // Returns `tenant` for the first kMaxTenants distinct ones. The result lives as long as this
  // object.
  std::string_view For(std::string_view tenant) {
    if (tenant.empty()) return kNoTenant;
    MutexLock lock(&mutex_);
    const auto found = names_.find(tenant);
    if (found != names_.end()) return *found;
    if (names_.size() >= kMaxTenants) return kOthers;
    return *names_.emplace(tenant).first;
  }

 private:
  Mutex mutex_;
  std::set<std::string, std::less<>> names_ TLM_GUARDED_BY(mutex_);
};

// Thread-safe.
class RequestMetrics {
 public:
  // `model_name` and `max_context` are the model's; `families` must outlive this object.
  RequestMetrics(MetricFamilies& families, std::string_view model_name, int64_t max_context);

  // `time` is from the arrival of a Generate call to its first token.
  void RecordFirstToken(absl::Duration time) { first_token_.Observe(time); }
  // Called at the end of an admitted call that used the engine.
  void RecordEnd(const CallSummary& call);

 private:
  // A latency in vLLM's buckets and in LatencyBuckets.
  struct Latency {
    prometheus::Histogram& vllm;
    prometheus::Histogram& fine;

    void Observe(absl::Duration time) {
      vllm.Observe(absl::ToDoubleSeconds(time));
      fine.Observe(absl::ToDoubleSeconds(time));
    }
  };

  // Returns the histogram of vLLM with this name, in vLLM's buckets for requests.
  prometheus::Histogram& Times(std::string_view name);
  // Returns the project's own histogram with this name, in LatencyBuckets.
  prometheus::Histogram& Fine(std::string_view name);

  MetricFamilies& families_;
  const std::string model_name_;
  Latency first_token_;
  Latency total_;
  Latency queue_;
  prometheus::Histogram& prefill_;
  prometheus::Histogram& decode_;
  prometheus::Histogram& inference_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& generation_tokens_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_REQUEST_METRICS_H_
