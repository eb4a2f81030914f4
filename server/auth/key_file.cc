#include "server/auth/key_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_fields.h"

namespace tlm {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr int kMaxDepth = 8;
constexpr std::string_view kFileFields[] = {"version", "defaults", "tenants", "keys",
                                            "certificates"};
constexpr std::string_view kKeyFields[] = {"id",   "salt",    "hash",    "tenant",
                                           "role", "created", "expires", "disabled"};
constexpr std::string_view kCertificateFields[] = {"subject",     "uri",    "dns",
                                                   "common_name", "tenant", "role"};
constexpr CertificateName kCertificateNames[] = {CertificateName::kSubject, CertificateName::kUri,
                                                 CertificateName::kDns,
                                                 CertificateName::kCommonName};

// Quotes outside text for a message; hides it when it may be an API key in the wrong place.
std::string Shown(std::string_view text) {
  return text.find("tlm_") == text.npos ? Quoted(text) : "'...'";
}

absl::StatusOr<JsonFields> Open(const Json& json, const std::string& name) {
  return JsonFields::Open(json, name, JsonFields::StringValues::kHidden);
}

// Checks the fields of the object `name`. Null means no limit, and is allowed only in limits.
enum class Nulls { kAllowed, kRefused };
absl::Status CheckFields(const JsonFields& fields, std::string_view name,
                         std::span<const std::string_view> known, Nulls nulls) {
  for (const std::string& key : fields.Keys()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return InvalidArgument("{}: there is no field {}", name, Shown(key));
    }
    if (nulls == Nulls::kRefused && fields.IsNull(key)) {
      return InvalidArgument("{} is null", fields.Name(key));
    }
  }
  return absl::OkStatus();
}

absl::Status NotHexadecimal(const JsonFields& fields, std::string_view key, size_t digits) {
  return InvalidArgument("{} must be {} lower-case hexadecimal digits", fields.Name(key), digits);
}

absl::StatusOr<std::string> ReadBytes(const JsonFields& fields, std::string_view key, size_t size) {
  TLM_ASSIGN_OR_RETURN(const std::string text, fields.RequiredString(key));
  std::optional<std::string> bytes = BytesOfHex(text);
  if (!bytes.has_value() || bytes->size() != size) return NotHexadecimal(fields, key, 2 * size);
  return *std::move(bytes);
}

absl::StatusOr<std::string> ReadTenant(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(std::string name, fields.RequiredString("tenant"));
  if (IsTenantName(name)) return name;
  return InvalidArgument("{} is {}, it must have 1 to {} printable ASCII characters",
                         fields.Name("tenant"), Shown(name), kMaxTenantBytes);
}

absl::StatusOr<Role> ReadRole(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::string name, fields.String("role", RoleName(Role::kInference)));
  const std::optional<Role> role = RoleFromName(name);
  if (role.has_value()) return *role;
  return InvalidArgument("{} is {}, it must be inference or admin", fields.Name("role"),
                         Shown(name));
}

absl::StatusOr<std::optional<absl::Time>> ReadTime(const JsonFields& fields, std::string_view key) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> text, fields.String(key));
  if (!text.has_value()) return std::nullopt;
  absl::Time time;
  std::string error;
  // Abseil also accepts "infinite-future", which is not a date.
  if (!absl::ParseTime(absl::RFC3339_full, *text, &time, &error) ||
      time == absl::InfiniteFuture() || time == absl::InfinitePast()) {
    return InvalidArgument("{} is {}, it must be a time such as 2027-01-31T00:00:00Z",
                           fields.Name(key), Shown(*text));
  }
  return time;
}

absl::StatusOr<std::optional<int64_t>> ReadLimit(const JsonFields& fields, const LimitKind& kind) {
  if (fields.IsNull(kind.name)) return kind.none;
  const Json* const value = fields.Find(kind.name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) {
    const uint64_t limit = value->get<uint64_t>();
    if (limit >= static_cast<uint64_t>(kind.min) && limit <= static_cast<uint64_t>(kind.max)) {
      return static_cast<int64_t>(limit);
    }
  }
  return fields.WrongType(
      kind.name, *value,
      fmt::format("an integer between {} and {}, or null for no limit", kind.min, kind.max));
}

absl::StatusOr<LimitSettings> ReadLimits(const Json& json, const std::string& name) {
  std::vector<std::string_view> known;
  for (const LimitKind& kind : kLimitKinds) known.push_back(kind.name);
  TLM_ASSIGN_OR_RETURN(const JsonFields fields, Open(json, name));
  TLM_RETURN_IF_ERROR(CheckFields(fields, name, known, Nulls::kAllowed));
  LimitSettings limits;
  for (const LimitKind& kind : kLimitKinds) {
    TLM_ASSIGN_OR_RETURN(limits.*kind.setting, ReadLimit(fields, kind));
  }
  return limits;
}

absl::StatusOr<KeyEntry> ReadKey(const Json& json, const std::string& name) {
  TLM_ASSIGN_OR_RETURN(const JsonFields fields, Open(json, name));
  TLM_RETURN_IF_ERROR(CheckFields(fields, name, kKeyFields, Nulls::kRefused));
  KeyEntry key;
  TLM_ASSIGN_OR_RETURN(key.id, fields.RequiredString("id"));
  if (!IsApiKeyId(key.id)) return NotHexadecimal(fields, "id", kApiKeyIdDigits);
  TLM_ASSIGN_OR_RETURN(key.hash.salt, ReadBytes(fields, "salt", kApiKeySaltBytes));
  TLM_ASSIGN_OR_RETURN(key.hash.hash, ReadBytes(fields, "hash", kApiKeyHashBytes));
  TLM_ASSIGN_OR_RETURN(key.tenant, ReadTenant(fields));
  TLM_ASSIGN_OR_RETURN(key.role, ReadRole(fields));
  TLM_ASSIGN_OR_RETURN(key.created, ReadTime(fields, "created"));
  TLM_ASSIGN_OR_RETURN(const std::optional<absl::Time> expires, ReadTime(fields, "expires"));
  key.expires = expires.value_or(absl::InfiniteFuture());
  TLM_ASSIGN_OR_RETURN(key.disabled, fields.Bool("disabled", false));
  return key;
}

absl::StatusOr<CertificateEntry> ReadCertificate(const Json& json, const std::string& name) {
  TLM_ASSIGN_OR_RETURN(const JsonFields fields, Open(json, name));
  TLM_RETURN_IF_ERROR(CheckFields(fields, name, kCertificateFields, Nulls::kRefused));
  CertificateEntry entry;
  int names = 0;
  for (const CertificateName kind : kCertificateNames) {
    const std::string_view field = CertificateNameKey(kind);
    if (!fields.Has(field)) continue;
    ++names;
    entry.kind = kind;
    TLM_ASSIGN_OR_RETURN(entry.name, fields.RequiredString(field));
    if (entry.name.empty() || entry.name.size() > kMaxCertificateNameBytes) {
      return InvalidArgument("{} has {} bytes, the range is [1, {}]", fields.Name(field),
                             entry.name.size(), kMaxCertificateNameBytes);
    }
  }
  if (names != 1) {
    return InvalidArgument("{} has {} of subject, uri, dns and common_name, it must have one", name,
                           names);
  }
  TLM_ASSIGN_OR_RETURN(entry.tenant, ReadTenant(fields));
  TLM_ASSIGN_OR_RETURN(entry.role, ReadRole(fields));
  return entry;
}

absl::Status CheckEntries(std::string_view name, size_t count) {
  if (count <= kMaxKeyFileEntries) return absl::OkStatus();
  return InvalidArgument("{} has {} entries, the limit is {}", name, count, kMaxKeyFileEntries);
}

// Calls `read` for each element of the array `key`; does nothing when it is missing.
template <typename Read>
absl::Status ReadArray(const JsonFields& root, const char* key, Read read) {
  if (!root.Has(key)) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const Json* const array, root.RequiredArray(key));
  TLM_RETURN_IF_ERROR(CheckEntries(key, array->size()));
  for (size_t i = 0; i < array->size(); ++i) {
    TLM_RETURN_IF_ERROR(read((*array)[i], fmt::format("{}[{}]", key, i)));
  }
  return absl::OkStatus();
}

absl::Status ReadTenants(const JsonFields& root, KeyFile& file) {
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> tenants, root.Object("tenants"));
  if (!tenants.has_value()) return absl::OkStatus();
  const std::vector<std::string> names = tenants->Keys();
  TLM_RETURN_IF_ERROR(CheckEntries("tenants", names.size()));
  for (const std::string& name : names) {
    if (!IsTenantName(name)) {
      return InvalidArgument("tenants: {} is not the name of a tenant", Shown(name));
    }
    TLM_ASSIGN_OR_RETURN(file.tenants[name],
                         ReadLimits(root.Find("tenants")->at(name), "tenants." + name));
  }
  return absl::OkStatus();
}

absl::Status ReadKeys(const JsonFields& root, KeyFile& file) {
  std::set<std::string> ids;
  return ReadArray(root, "keys", [&](const Json& json, const std::string& place) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(KeyEntry key, ReadKey(json, place));
    if (!ids.insert(key.id).second) {
      return InvalidArgument("{}: another key has the id {}", place, key.id);
    }
    file.keys.push_back(std::move(key));
    return absl::OkStatus();
  });
}

absl::Status ReadCertificates(const JsonFields& root, KeyFile& file) {
  std::set<std::pair<CertificateName, std::string>> names;
  return ReadArray(root, "certificates",
                   [&](const Json& json, const std::string& place) -> absl::Status {
                     TLM_ASSIGN_OR_RETURN(CertificateEntry entry, ReadCertificate(json, place));
                     if (!names.emplace(entry.kind, entry.name).second) {
                       return InvalidArgument("{}: another entry has the same {}", place,
                                              CertificateNameKey(entry.kind));
                     }
                     file.certificates.push_back(std::move(entry));
                     return absl::OkStatus();
                   });
}

using OrderedJson = nlohmann::ordered_json;

OrderedJson LimitsJson(const LimitSettings& limits) {
  OrderedJson json = OrderedJson::object();
  for (const LimitKind& kind : kLimitKinds) {
    const std::optional<int64_t>& value = limits.*kind.setting;
    if (!value.has_value()) continue;
    json[std::string(kind.name)] = *value == kind.none ? OrderedJson(nullptr) : OrderedJson(*value);
  }
  return json;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", time, absl::UTCTimeZone());
}

OrderedJson KeyJson(const KeyEntry& key) {
  OrderedJson json = {{"id", key.id},
                      {"salt", HexText(key.hash.salt)},
                      {"hash", HexText(key.hash.hash)},
                      {"tenant", key.tenant},
                      {"role", RoleName(key.role)}};
  if (key.created.has_value()) json["created"] = TimeText(*key.created);
  if (key.expires != absl::InfiniteFuture()) json["expires"] = TimeText(key.expires);
  if (key.disabled) json["disabled"] = true;
  return json;
}

}  // namespace

TenantLimits KeyFile::LimitsOf(const std::string& tenant) const {
  const auto found = tenants.find(tenant);
  const LimitSettings own = found == tenants.end() ? LimitSettings() : found->second;
  TenantLimits limits;
  for (const LimitKind& kind : kLimitKinds) {
    const std::optional<int64_t>& set = own.*kind.setting;
    limits.*kind.limit = set.has_value() ? *set : (defaults.*kind.setting).value_or(kind.usual);
  }
  return limits;
}

absl::StatusOr<KeyFile> ParseKeyFile(std::string_view text) {
  if (text.size() > kMaxKeyFileBytes) {
    return InvalidArgument("has {} bytes, the limit is {}", text.size(), kMaxKeyFileBytes);
  }
  TLM_ASSIGN_OR_RETURN(const Json json, ParseJson(text, kMaxDepth));
  TLM_RETURN_IF_ERROR(Open(json, "the file").status());
  const JsonFields root(json, "", JsonFields::StringValues::kHidden);
  TLM_RETURN_IF_ERROR(CheckFields(root, "the file", kFileFields, Nulls::kRefused));
  const Json* const version = root.Find("version");
  if (version == nullptr || !version->is_number_integer() || *version != Json(kVersion)) {
    return InvalidArgument("version is missing or not {}", kVersion);
  }
  KeyFile file;
  if (const Json* const defaults = root.Find("defaults"); defaults != nullptr) {
    TLM_ASSIGN_OR_RETURN(file.defaults, ReadLimits(*defaults, "defaults"));
  }
  TLM_RETURN_IF_ERROR(ReadTenants(root, file));
  TLM_RETURN_IF_ERROR(ReadKeys(root, file));
  TLM_RETURN_IF_ERROR(ReadCertificates(root, file));
  return file;
}

std::string KeyFileText(const KeyFile& file) {
  OrderedJson json = {{"version", kVersion}};
  if (file.defaults != LimitSettings()) json["defaults"] = LimitsJson(file.defaults);
  if (!file.tenants.empty()) {
    OrderedJson& tenants = json["tenants"] = OrderedJson::object();
    for (const auto& [name, limits] : file.tenants) tenants[name] = LimitsJson(limits);
  }
  OrderedJson& keys = json["keys"] = OrderedJson::array();
  for (const KeyEntry& key : file.keys) keys.push_back(KeyJson(key));
  if (!file.certificates.empty()) {
    OrderedJson& certificates = json["certificates"] = OrderedJson::array();
    for (const CertificateEntry& entry : file.certificates) {
      certificates.push_back({{std::string(CertificateNameKey(entry.kind)), entry.name},
                              {"tenant", entry.tenant},
                              {"role", RoleName(entry.role)}});
    }
  }
  return json.dump(2) + "\n";
}

bool IsTenantName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTenantBytes && text.front() != ' ' &&
         text.back() != ' ' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::optional<Role> RoleFromName(std::string_view name) {
  if (name == "inference") return Role::kInference;
  if (name == "admin") return Role::kAdmin;
  return std::nullopt;
}

std::string_view RoleName(Role role) { return role == Role::kAdmin ? "admin" : "inference"; }

std::string_view CertificateNameKey(CertificateName kind) {
  switch (kind) {
    case CertificateName::kSubject:
      return "subject";
    case CertificateName::kUri:
      return "uri";
    case CertificateName::kDns:
      return "dns";
    case CertificateName::kCommonName:
      break;
  }
  return "common_name";
}

}  // namespace tlm
