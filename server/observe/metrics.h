// Records the server's metrics for Prometheus. server/observe/README.md lists all of them.
#ifndef TLM_SERVER_OBSERVE_METRICS_H_
#define TLM_SERVER_OBSERVE_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/observe/call_summary.h"
#include "server/observe/engine_stats.h"
#include "server/observe/nvml.h"
#include "server/observe/server_state.h"

namespace tlm {

class EngineMetrics;

// Properties of the loaded model in labels.
struct ModelFacts {
  std::string name;  // the `model` of requests
  std::string backend;
  std::string device;
  std::string fingerprint;
  int64_t max_context = 0;
  int64_t kv_blocks = 0;
  int64_t block_tokens = 0;
  std::string kv_cache_dtype;
  bool prefix_cache = false;
  int64_t max_draft_tokens = 0;  // 0: no tokens are guessed
};

// One per process; must outlive all its users. Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void SetBuild(std::string_view version, std::string_view build_id);
  // Called once, when the model is loaded, before its engine starts and before any call. Until then
  // calls are only counted. The result is for that engine and lives as long as this object.
  EngineMetrics* SetModel(const ModelFacts& facts);
  // `read` is called at every scrape; with null the last snapshot stays.
  void SetEngineStats(std::function<EngineStats()> read);
  // The same for metrics of a GPU; with null there are none.
  void SetGpu(std::function<std::optional<GpuFigures>()> read);

  // An admitted call is counted at its admission and at its end; any other call once, at its end,
  // as refused. The arguments need not outlive the function call.
  void CountAdmitted(std::string_view rpc, std::string_view tenant);
  void CountEnd(const CallSummary& call);
  void RecordFirstToken(absl::Duration since_arrival);
  // Finish reason of a successful output of Generate: "eos", "stop_token", ...
  void CountOutput(std::string_view finish);
  // The regions of a successful Generate call that reported them.
  void CountRegions(const RegionCounts& regions);

  // The result of a constraint: "kept" (compiled before), "joined" (another call has it compiled),
  // "compiled", "invalid", "too_large", "cancelled". RecordCompile takes the time of each
  // compilation, also of a failed one.
  void CountConstraint(std::string_view result);
  void RecordCompile(absl::Duration time);

  // Credentials.
  void SetCertificateExpiry(absl::Time end);
  void CountCertificateReload(bool ok);
  void SetApiKeys(int64_t accepted);
  void CountApiKeyReload(bool ok);

  // Spans of traces: "exported", or why they were not: "queue_full", "refused", "unreachable".
  void CountSpans(std::string_view result, int64_t count);

  // Everything in Prometheus' text format 0.0.4.
  std::string Text(LifeState state) const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_METRICS_H_
