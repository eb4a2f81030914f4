// Reads and writes the file that --api_keys names: keys, their tenants and roles, and the tenants'
// limits, in JSON:
//
//   {
//     "version": 1,
//     "defaults": {"requests_per_minute": 600},
//     "tenants": {
//       "acme": {"requests_per_minute": 60, "tokens_per_minute": 100000,
//                "max_concurrent_requests": 8, "max_priority": 10},
//       "batch": {"requests_per_minute": null}
//     },
//     "keys": [
//       {"id": "3f9a0c51d2e7", "salt": "<32 hex digits>", "hash": "<64 hex digits>",
//        "tenant": "acme", "role": "inference", "created": "2026-01-31T12:00:00Z",
//        "expires": "2027-01-31T00:00:00Z", "disabled": true}
//     ],
//     "certificates": [
//       {"common_name": "ops-1", "tenant": "ops", "role": "admin"}
//     ]
//   }
//
// `version`, and a key's `id`, `salt`, `hash` and `tenant`, are required; `role` is "inference"
// unless it says "admin". Exactly one of `subject` (RFC 2253), `uri`, `dns` and `common_name` names
// a certificate. A limit that a tenant lacks comes from `defaults`; null means no limit. If both
// lack it there is no limit, except for `max_priority`, which is 0: priority outranks fairness, so
// a tenant needs permission for it. A tenant need not be listed in `tenants`. Any other content is
// an error.
#ifndef TLM_SERVER_AUTH_KEY_FILE_H_
#define TLM_SERVER_AUTH_KEY_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/auth/api_key.h"
#include "server/auth/principal.h"

namespace tlm {

// nullopt: the default applies. Values as in TenantLimits.
struct LimitSettings {
  std::optional<int64_t> requests_per_minute;
  std::optional<int64_t> tokens_per_minute;
  std::optional<int64_t> max_concurrent_requests;
  std::optional<int64_t> max_priority;

  bool operator==(const LimitSettings&) const = default;
};

struct KeyEntry {
  std::string id;
  ApiKeyHash hash;
  std::string tenant;
  Role role = Role::kInference;
  std::optional<absl::Time> created;
  absl::Time expires = absl::InfiniteFuture();
  bool disabled = false;
};

// The kind of certificate name of an entry, the most specific first.
enum class CertificateName { kSubject, kUri, kDns, kCommonName };

struct CertificateEntry {
  CertificateName kind = CertificateName::kCommonName;
  std::string name;
  std::string tenant;
  Role role = Role::kInference;
};

struct KeyFile {
  LimitSettings defaults;
  std::map<std::string, LimitSettings> tenants;
  std::vector<KeyEntry> keys;
  std::vector<CertificateEntry> certificates;

  TenantLimits LimitsOf(const std::string& tenant) const;
};

inline constexpr size_t kMaxKeyFileBytes = size_t{32} << 20;
inline constexpr size_t kMaxKeyFileEntries = 100'000;  // entries of each kind
inline constexpr int64_t kMaxTenantLimit = int64_t{1} << 40;
inline constexpr size_t kMaxTenantBytes = 64;
inline constexpr size_t kMaxCertificateNameBytes = 1024;

// A limit's name and range, in the file and on the command line.
struct LimitKind {
  std::string_view name;
  std::optional<int64_t> LimitSettings::*setting;
  int64_t TenantLimits::*limit;
  int64_t min;
  int64_t max;
  int64_t none;   // the value that means no limit
  int64_t usual;  // the value if neither the tenant nor the defaults set it
};

inline constexpr LimitKind kLimitKinds[] = {
    {"requests_per_minute", &LimitSettings::requests_per_minute, &TenantLimits::requests_per_minute,
     1, kMaxTenantLimit, 0, 0},
    {"tokens_per_minute", &LimitSettings::tokens_per_minute, &TenantLimits::tokens_per_minute, 1,
     kMaxTenantLimit, 0, 0},
    {"max_concurrent_requests", &LimitSettings::max_concurrent_requests,
     &TenantLimits::max_concurrent_requests, 1, kMaxTenantLimit, 0, 0},
    {"max_priority", &LimitSettings::max_priority, &TenantLimits::max_priority, 0, kMaxPriority,
     kMaxPriority, 0},
};

// INVALID_ARGUMENT names the place and the fault: "keys[3].expires: ...". Never contains a hash.
absl::StatusOr<KeyFile> ParseKeyFile(std::string_view json);
// Returns the text in the format of ParseKeyFile, with a final line feed.
std::string KeyFileText(const KeyFile& file);

// 1 to kMaxTenantBytes printable ASCII characters, without a space at either end.
bool IsTenantName(std::string_view text);
// "inference" or "admin" and back; nullopt for anything else.
std::optional<Role> RoleFromName(std::string_view name);
std::string_view RoleName(Role role);
// Returns the key in the file: "subject", "uri", "dns" or "common_name".
std::string_view CertificateNameKey(CertificateName kind);

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEY_FILE_H_
