#include "server/rpc/call/load_reporter.h"

#include <algorithm>
#include <cmath>

#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace tlm {

std::string LoadReporter::Serialized() {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  if (now - made_ >= kMaxAge) Refresh(now);
  return report_;
}

void LoadReporter::Refresh(absl::Time now) {
  const EngineStats stats = engine_.Stats();
  const auto running = static_cast<double>(stats.running_requests);
  const auto waiting = static_cast<double>(stats.waiting_requests);
  const double kept = std::exp(-absl::FDivDuration(now - made_, kMemory));  // 0 for the first
  requests_ = kept * requests_ + (1 - kept) * (running + waiting);
  made_ = now;

  xds::data::orca::v3::OrcaLoadReport report;
  report.set_rps_fractional(1);
  report.set_application_utilization((requests_ + kIdleRequests) /
                                     static_cast<double>(max_running_requests_));
  auto& named = *report.mutable_named_metrics();
  named["kv_cache_usage_perc"] = static_cast<double>(stats.kv_blocks_used) /
                                 static_cast<double>(std::max<int64_t>(stats.kv_blocks_total, 1));
  named["num_requests_running"] = running;
  named["num_requests_waiting"] = waiting;
  report_ = report.SerializeAsString();
}

}  // namespace tlm
