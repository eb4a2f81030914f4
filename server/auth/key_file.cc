#include "server/auth/key_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

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

// Outside text for a message, unless somebody may have put a key into the wrong place.
std::string Shown(std::string_view text) {
  return text.find("tlm_") == text.npos ? Quoted(text) : "'...'";
}

// One object of the file, and where it stands for messages: "keys[3]".
class Object {
 public:
  static absl::StatusOr<Object> Open(const Json& json, std::string place,
                                     std::span<const std::string_view> known) {
    if (!json.is_object()) return InvalidArgument("{}: is no object", place);
    for (const auto& item : json.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        return InvalidArgument("{}: there is no field {}", place, Shown(item.key()));
      }
    }
    return Object(json, std::move(place));
  }

  std::string Place(std::string_view field) const { return fmt::format("{}.{}", place_, field); }
  // Null when the object lacks it.
  const Json* Find(std::string_view field) const {
    const auto found = json_.find(std::string(field));
    return found == json_.end() ? nullptr : &*found;
  }

  absl::StatusOr<std::string> Text(std::string_view field) const {
    const Json* const value = Find(field);
    if (value == nullptr) return InvalidArgument("{}: is missing", Place(field));
    if (!value->is_string()) return InvalidArgument("{}: is no string", Place(field));
    return value->get<std::string>();
  }

  absl::StatusOr<std::string> Bytes(std::string_view field, size_t size) const {
    TLM_ASSIGN_OR_RETURN(const std::string text, Text(field));
    std::optional<std::string> bytes = BytesOfHex(text);
    if (!bytes.has_value() || bytes->size() != size) {
      return InvalidArgument("{}: is not {} lower-case hexadecimal digits", Place(field), 2 * size);
    }
    return *std::move(bytes);
  }

  absl::StatusOr<std::string> Tenant() const {
    TLM_ASSIGN_OR_RETURN(std::string name, Text("tenant"));
    if (!IsTenantName(name)) {
      return InvalidArgument(
          "{}: {} is no name of a tenant, which has 1 to {} printable ASCII "
          "characters",
          Place("tenant"), Shown(name), kMaxTenantBytes);
    }
    return name;
  }

  absl::StatusOr<tlm::Role> Role() const {
    if (Find("role") == nullptr) return tlm::Role::kInference;
    TLM_ASSIGN_OR_RETURN(const std::string name, Text("role"));
    const std::optional<tlm::Role> role = RoleFromName(name);
    if (role.has_value()) return *role;
    return InvalidArgument("{}: is {}, it may be inference or admin", Place("role"), Shown(name));
  }

  absl::StatusOr<std::optional<absl::Time>> Time(std::string_view field) const {
    if (Find(field) == nullptr) return std::nullopt;
    TLM_ASSIGN_OR_RETURN(const std::string text, Text(field));
    absl::Time time;
    std::string error;
    // Abseil reads "infinite-future" as well, which is no date.
    if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) ||
        time == absl::InfiniteFuture() || time == absl::InfinitePast()) {
      return InvalidArgument("{}: {} is no time as 2027-01-31T00:00:00Z", Place(field),
                             Shown(text));
    }
    return time;
  }

  absl::StatusOr<bool> Flag(std::string_view field) const {
    const Json* const value = Find(field);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return InvalidArgument("{}: is neither true nor false", Place(field));
    return value->get<bool>();
  }

  absl::StatusOr<std::optional<int64_t>> Limit(const LimitKind& kind) const {
    const Json* const value = Find(kind.name);
    if (value == nullptr) return std::nullopt;
    if (value->is_null()) return kind.none;
    if (value->is_number_unsigned()) {
      const uint64_t limit = value->get<uint64_t>();
      if (limit >= static_cast<uint64_t>(kind.min) && limit <= static_cast<uint64_t>(kind.max)) {
        return static_cast<int64_t>(limit);
      }
    }
    return InvalidArgument("{}: is no whole number of {} to {}, nor null for no limit",
                           Place(kind.name), kind.min, kind.max);
  }

 private:
  Object(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  const Json& json_;
  std::string place_;
};

absl::StatusOr<LimitSettings> ReadLimits(const Json& json, std::string place) {
  std::vector<std::string_view> known;
  for (const LimitKind& kind : kLimitKinds) known.push_back(kind.name);
  TLM_ASSIGN_OR_RETURN(const Object object, Object::Open(json, std::move(place), known));
  LimitSettings limits;
  for (const LimitKind& kind : kLimitKinds) {
    TLM_ASSIGN_OR_RETURN(limits.*kind.setting, object.Limit(kind));
  }
  return limits;
}

absl::StatusOr<KeyEntry> ReadKey(const Json& json, std::string place) {
  TLM_ASSIGN_OR_RETURN(const Object object, Object::Open(json, std::move(place), kKeyFields));
  KeyEntry key;
  TLM_ASSIGN_OR_RETURN(key.id, object.Text("id"));
  if (!IsApiKeyId(key.id)) {
    return InvalidArgument("{}: is not {} lower-case hexadecimal digits", object.Place("id"),
                           kApiKeyIdDigits);
  }
  TLM_ASSIGN_OR_RETURN(key.hash.salt, object.Bytes("salt", kApiKeySaltBytes));
  TLM_ASSIGN_OR_RETURN(key.hash.hash, object.Bytes("hash", kApiKeyHashBytes));
  TLM_ASSIGN_OR_RETURN(key.tenant, object.Tenant());
  TLM_ASSIGN_OR_RETURN(key.role, object.Role());
  TLM_ASSIGN_OR_RETURN(key.created, object.Time("created"));
  TLM_ASSIGN_OR_RETURN(const std::optional<absl::Time> expires, object.Time("expires"));
  key.expires = expires.value_or(absl::InfiniteFuture());
  TLM_ASSIGN_OR_RETURN(key.disabled, object.Flag("disabled"));
  return key;
}

absl::StatusOr<CertificateEntry> ReadCertificate(const Json& json, const std::string& place) {
  TLM_ASSIGN_OR_RETURN(const Object object, Object::Open(json, place, kCertificateFields));
  CertificateEntry entry;
  int names = 0;
  for (const CertificateName kind : kCertificateNames) {
    const std::string_view field = CertificateNameKey(kind);
    if (object.Find(field) == nullptr) continue;
    ++names;
    entry.kind = kind;
    TLM_ASSIGN_OR_RETURN(entry.name, object.Text(field));
    if (entry.name.empty() || entry.name.size() > kMaxCertificateNameBytes) {
      return InvalidArgument("{}: has {} bytes, the range is [1, {}]", object.Place(field),
                             entry.name.size(), kMaxCertificateNameBytes);
    }
  }
  if (names != 1) {
    return InvalidArgument("{}: has {} of subject, uri, dns and common_name, it takes one", place,
                           names);
  }
  TLM_ASSIGN_OR_RETURN(entry.tenant, object.Tenant());
  TLM_ASSIGN_OR_RETURN(entry.role, object.Role());
  return entry;
}

absl::Status CheckEntries(std::string_view place, size_t count) {
  if (count <= kMaxKeyFileEntries) return absl::OkStatus();
  return InvalidArgument("{}: has {} entries, the limit is {}", place, count, kMaxKeyFileEntries);
}

// The elements of the list `field`, one by one; none when it is missing.
template <typename Read>
absl::Status ReadList(const Object& root, const char* field, Read read) {
  const Json* const list = root.Find(field);
  if (list == nullptr) return absl::OkStatus();
  if (!list->is_array()) return InvalidArgument("{}: is no list", field);
  TLM_RETURN_IF_ERROR(CheckEntries(field, list->size()));
  for (size_t i = 0; i < list->size(); ++i) {
    TLM_RETURN_IF_ERROR(read((*list)[i], fmt::format("{}[{}]", field, i)));
  }
  return absl::OkStatus();
}

absl::Status ReadTenants(const Object& root, KeyFile& file) {
  const Json* const tenants = root.Find("tenants");
  if (tenants == nullptr) return absl::OkStatus();
  if (!tenants->is_object()) return InvalidArgument("tenants: is no object");
  TLM_RETURN_IF_ERROR(CheckEntries("tenants", tenants->size()));
  for (const auto& item : tenants->items()) {
    if (!IsTenantName(item.key())) {
      return InvalidArgument("tenants: {} is no name of a tenant", Shown(item.key()));
    }
    TLM_ASSIGN_OR_RETURN(file.tenants[item.key()],
                         ReadLimits(item.value(), fmt::format("tenants.{}", item.key())));
  }
  return absl::OkStatus();
}

absl::Status ReadKeys(const Object& root, KeyFile& file) {
  std::set<std::string> ids;
  return ReadList(root, "keys", [&](const Json& json, const std::string& place) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(KeyEntry key, ReadKey(json, place));
    if (!ids.insert(key.id).second) {
      return InvalidArgument("{}: another key has the id {}", place, key.id);
    }
    file.keys.push_back(std::move(key));
    return absl::OkStatus();
  });
}

absl::Status ReadCertificates(const Object& root, KeyFile& file) {
  std::set<std::pair<CertificateName, std::string>> names;
  return ReadList(root, "certificates",
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
  TLM_ASSIGN_OR_RETURN(const Object root, Object::Open(json, "the file", kFileFields));
  const Json* const version = root.Find("version");
  if (version == nullptr || !version->is_number_integer() || *version != Json(kVersion)) {
    return InvalidArgument("version: is missing or not {}", kVersion);
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
