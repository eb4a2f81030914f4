// What the server counts and measures, for Prometheus. server/observe/README.md lists all of it.
#ifndef TLM_SERVER_OBSERVE_METRICS_H_
#define TLM_SERVER_OBSERVE_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/observe/call_summary.h"
#include "server/observe/engine_figures.h"
#include "server/observe/server_state.h"

namespace tlm {

class EngineMetrics;

// vLLM numbers its engines; there is one here.
inline constexpr std::string_view kEngineLabel = "0";

// What metrics say about the model, once it is loaded.
struct ModelFacts {
  std::string name;  // what requests may give as `model`
  std::string backend;
  std::string device;
  std::string fingerprint;
  int64_t max_context = 0;
  int64_t kv_blocks = 0;
  int64_t block_tokens = 0;
  std::string kv_cache_dtype;
  bool prefix_cache = false;
};

// One a process; outlives everything that counts. Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void SetBuild(std::string_view version, std::string_view build_id);
  // The model is loaded: once, before its engine starts and before any call. What is measured of
  // calls without a model is their number alone. The result is for that engine, and lives as long
  // as this.
  EngineMetrics* SetModel(const ModelFacts& facts);
  // Asked at every reading; null: nobody, and what the last one said stays.
  void SetEngineFigures(std::function<EngineFigures()> figures);

  // Calls. One that is admitted is counted once at its admission and once at its end; any other
  // once, at its end, as refused. What these are given need not outlive the call.
  void CountAdmitted(std::string_view rpc, std::string_view tenant);
  void CountEnd(const CallSummary& call);
  void RecordFirstToken(absl::Duration since_arrival);
  // An output of Generate ended well: "eos", "stop_token", ...
  void CountOutput(std::string_view finish);

  // Credentials.
  void SetCertificateExpiry(absl::Time end);
  void CountCertificateReload(bool ok);
  void SetApiKeys(int64_t accepted);
  void CountApiKeyReload(bool ok);

  // Everything in Prometheus' text format 0.0.4.
  std::string Text(LifeState state) const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_METRICS_H_
