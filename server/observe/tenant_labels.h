// Tenant names as label values, bounded in number.
#ifndef TLM_SERVER_OBSERVE_TENANT_LABELS_H_
#define TLM_SERVER_OBSERVE_TENANT_LABELS_H_

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "model/base/mutex.h"

namespace tlm {

// Each label value costs memory here and in the time-series database. Thread-safe.
class TenantLabels {
 public:
  static constexpr size_t kMaxTenants = 256;
  static constexpr std::string_view kNoTenant = "-";    // calls without a tenant
  static constexpr std::string_view kOthers = "other";  // for tenants beyond the first kMaxTenants

  // `tenant` itself for the first kMaxTenants distinct ones. The result lives as long as this.
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

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_TENANT_LABELS_H_
