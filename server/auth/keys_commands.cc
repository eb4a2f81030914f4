#include "server/auth/keys_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/program/flag_errors.h"
#include "server/auth/api_key.h"
#include "server/auth/key_file.h"
#include "server/auth/key_store.h"

namespace tlm {
namespace {

constexpr std::string_view kAddFlags[] = {"file", "tenant", "role", "expires"};
constexpr std::string_view kListFlags[] = {"file"};
constexpr std::string_view kIdFlags[] = {"file", "id"};
constexpr std::string_view kRotateFlags[] = {"file", "id", "expires", "grace"};
constexpr std::string_view kLimitsFlags[] = {
    "file",        "tenant", "requests_per_minute", "tokens_per_minute", "max_concurrent_requests",
    "max_priority"};
constexpr std::string_view kLimitsSwitches[] = {"defaults"};
constexpr std::string_view kCertificateFlags[] = {"file",        "subject", "uri", "dns",
                                                  "common_name", "tenant",  "role"};
constexpr std::string_view kCertificateSwitches[] = {"remove"};
constexpr absl::Duration kRotationGrace = absl::Hours(24);

// Turns an I/O error that has the code of a usage error into another error.
absl::Status NotUsage(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? absl::FailedPreconditionError(status.message()) : status;
}

absl::StatusOr<std::unique_ptr<KeyStore>> OpenStore(const KeysArguments& arguments,
                                                    KeyStore::Missing missing) {
  TLM_ASSIGN_OR_RETURN(const std::string path, arguments.Required("file"));
  absl::StatusOr<std::unique_ptr<KeyStore>> store = KeyStore::Open(path, missing);
  if (!store.ok()) return NotUsage(store.status());
  return store;
}

absl::Status Save(KeyStore& store) { return NotUsage(store.Save()); }

absl::Status SaveAndPrint(KeyStore& store, const NewApiKey& key, PrintText print) {
  return NotUsage(store.Save([&] { return print(key.text + "\n"); }));
}

absl::StatusOr<std::string> TenantFrom(const KeysArguments& arguments) {
  TLM_ASSIGN_OR_RETURN(std::string tenant, arguments.Required("tenant"));
  if (IsTenantName(tenant)) return tenant;
  return InvalidArgument("--tenant is {}, it takes 1 to {} printable ASCII characters",
                         Quoted(tenant), kMaxTenantBytes);
}

absl::StatusOr<Role> RoleFrom(const KeysArguments& arguments) {
  const std::string name = arguments.Find("role").value_or("inference");
  if (const std::optional<Role> role = RoleFromName(name); role.has_value()) return *role;
  return InvalidArgument("--role is {}, it may be inference or admin", Quoted(name));
}

// Also accepts "90d", which Abseil does not know.
std::optional<absl::Duration> DurationFrom(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration)) return duration;
  int days = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, days);
  if (error != std::errc() || end - rest != 1 || *rest != 'd') return std::nullopt;
  return days * absl::Hours(24);
}

absl::StatusOr<absl::Time> ExpiryFrom(const KeysArguments& arguments, absl::Time now) {
  const std::optional<std::string> text = arguments.Find("expires");
  if (!text.has_value()) return absl::InfiniteFuture();
  absl::Time time;
  std::string error;
  if (const std::optional<absl::Duration> after = DurationFrom(*text); after.has_value()) {
    time = now + *after;
  } else if (!absl::ParseTime(absl::RFC3339_full, *text, &time, &error)) {
    return InvalidArgument("--expires is {}, it takes 90d, 12h or 2027-01-31T00:00:00Z",
                           Quoted(*text));
  }
  if (time <= now) return InvalidArgument("--expires is {}, which is past", Quoted(*text));
  if (time == absl::InfiniteFuture()) {
    return InvalidArgument("--expires is {}: leave it out for a key that does not expire",
                           Quoted(*text));
  }
  return time;
}

// Whole seconds are precise enough.
absl::Time Seconds(absl::Time time) { return absl::FromUnixSeconds(absl::ToUnixSeconds(time)); }

KeyEntry EntryFor(const NewApiKey& key, std::string tenant, Role role, absl::Time now,
                  absl::Time expires) {
  return {key.id, key.hash,     std::move(tenant),
          role,   Seconds(now), expires == absl::InfiniteFuture() ? expires : Seconds(expires),
          false};
}

absl::Status Add(const KeysArguments& arguments, Clock& clock, PrintText print) {
  const absl::Time now = clock.Now();
  TLM_ASSIGN_OR_RETURN(const std::string tenant, TenantFrom(arguments));
  TLM_ASSIGN_OR_RETURN(const Role role, RoleFrom(arguments));
  TLM_ASSIGN_OR_RETURN(const absl::Time expires, ExpiryFrom(arguments, now));
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, KeyStore::Missing::kEmpty));
  TLM_ASSIGN_OR_RETURN(const NewApiKey key, MakeApiKey());
  store->file().keys.push_back(EntryFor(key, tenant, role, now, expires));
  return SaveAndPrint(*store, key, print);
}

std::string LimitText(std::optional<int64_t> limit, const LimitKind& kind) {
  if (!limit.has_value()) return "default";
  return *limit == kind.none ? "none" : std::to_string(*limit);
}

std::string LimitsLine(std::string_view whose, const LimitSettings& limits) {
  std::string line = fmt::format("{:<24}", whose);
  for (const LimitKind& kind : kLimitKinds) {
    line += fmt::format(" {}={}", kind.name, LimitText(limits.*kind.setting, kind));
  }
  return line + "\n";
}

std::string DateText(std::optional<absl::Time> time) {
  if (!time.has_value()) return "-";
  if (*time == absl::InfiniteFuture()) return "never";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", *time, absl::UTCTimeZone());
}

std::string ListText(const KeyFile& file, Clock& clock) {
  std::string text = fmt::format("{:<12}  {:<9}  {:<8}  {:<20}  {:<20}  {}\n", "ID", "ROLE",
                                 "STATE", "CREATED", "EXPIRES", "TENANT");
  for (const KeyEntry& key : file.keys) {
    const char* const state = key.disabled                 ? "disabled"
                              : clock.Now() >= key.expires ? "expired"
                                                           : "active";
    text += fmt::format("{:<12}  {:<9}  {:<8}  {:<20}  {:<20}  {}\n", key.id, RoleName(key.role),
                        state, DateText(key.created), DateText(key.expires), key.tenant);
  }
  if (!file.certificates.empty()) text += "\nCERTIFICATES\n";
  for (const CertificateEntry& entry : file.certificates) {
    text += fmt::format("{}={}  {}  {}\n", CertificateNameKey(entry.kind), entry.name,
                        RoleName(entry.role), entry.tenant);
  }
  if (file.defaults != LimitSettings() || !file.tenants.empty()) text += "\nLIMITS\n";
  if (file.defaults != LimitSettings()) text += LimitsLine("(defaults)", file.defaults);
  for (const auto& [tenant, limits] : file.tenants) text += LimitsLine(tenant, limits);
  return text;
}

absl::Status List(const KeysArguments& arguments, Clock& clock, PrintText print) {
  TLM_ASSIGN_OR_RETURN(auto store, OpenStore(arguments, KeyStore::Missing::kError));
  const std::string text = ListText(store->file(), clock);
  store = nullptr;  // unlocks the file before a pager shows the text
  return print(text);
}

// Returns the entry in the store's file that --id names.
absl::StatusOr<KeyEntry*> Named(const KeysArguments& arguments, KeyStore& store) {
  TLM_ASSIGN_OR_RETURN(const std::string id, arguments.Required("id"));
  for (KeyEntry& key : store.file().keys) {
    if (key.id == id) return &key;
  }
  return NotFound("the file has no key with the id {}", Quoted(id));
}

absl::Status SetDisabled(const KeysArguments& arguments, bool disabled) {
  TLM_RETURN_IF_ERROR(arguments.Required("id").status());
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, KeyStore::Missing::kError));
  TLM_ASSIGN_OR_RETURN(KeyEntry* const key, Named(arguments, *store));
  key->disabled = disabled;
  return Save(*store);
}

absl::Status Disable(const KeysArguments& arguments, Clock&, PrintText) {
  return SetDisabled(arguments, true);
}

absl::Status Enable(const KeysArguments& arguments, Clock&, PrintText) {
  return SetDisabled(arguments, false);
}

absl::Status Remove(const KeysArguments& arguments, Clock&, PrintText) {
  TLM_RETURN_IF_ERROR(arguments.Required("id").status());
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, KeyStore::Missing::kError));
  TLM_ASSIGN_OR_RETURN(const KeyEntry* const key, Named(arguments, *store));
  store->file().keys.erase(store->file().keys.begin() + (key - store->file().keys.data()));
  return Save(*store);
}

absl::Status Rotate(const KeysArguments& arguments, Clock& clock, PrintText print) {
  const absl::Time now = clock.Now();
  TLM_RETURN_IF_ERROR(arguments.Required("id").status());
  TLM_ASSIGN_OR_RETURN(const absl::Time expires, ExpiryFrom(arguments, now));
  absl::Duration grace = kRotationGrace;
  if (const std::optional<std::string> text = arguments.Find("grace"); text.has_value()) {
    const std::optional<absl::Duration> given = DurationFrom(*text);
    if (!given.has_value() || *given < absl::ZeroDuration() || *given == absl::InfiniteDuration()) {
      return InvalidArgument("--grace is {}, it takes 0, 12h or 7d", Quoted(*text));
    }
    grace = *given;
  }
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, KeyStore::Missing::kError));
  TLM_ASSIGN_OR_RETURN(KeyEntry* const old, Named(arguments, *store));
  TLM_ASSIGN_OR_RETURN(const NewApiKey key, MakeApiKey());
  old->expires = std::min(old->expires, Seconds(now + grace));
  KeyEntry fresh = EntryFor(key, old->tenant, old->role, now, expires);
  store->file().keys.push_back(std::move(fresh));
  return SaveAndPrint(*store, key, print);
}

absl::Status ReadLimit(const std::string& text, const LimitKind& kind,
                       std::optional<int64_t>& limit) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text == "default") {
    limit = std::nullopt;
  } else if (text == "none") {
    limit = kind.none;
  } else if (error == std::errc() && rest == end && value >= kind.min && value <= kind.max) {
    limit = value;
  } else {
    return InvalidArgument("--{} is {}, it takes {} to {}, none or default", kind.name,
                           Quoted(text), kind.min, kind.max);
  }
  return absl::OkStatus();
}

absl::Status ReadLimits(const KeysArguments& arguments, LimitSettings& limits) {
  bool any = false;
  std::string names;
  for (const LimitKind& kind : kLimitKinds) {
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", kind.name);
    const std::optional<std::string> text = arguments.Find(kind.name);
    if (!text.has_value()) continue;
    any = true;
    TLM_RETURN_IF_ERROR(ReadLimit(*text, kind, limits.*kind.setting));
  }
  return any ? absl::OkStatus() : InvalidArgument("give at least one of {}", names);
}

absl::Status Limits(const KeysArguments& arguments, Clock&, PrintText) {
  const bool defaults = arguments.Has("defaults");
  if (defaults == arguments.Has("tenant")) {
    return InvalidArgument(
        "give --tenant, or --defaults for the tenants without limits of their "
        "own");
  }
  LimitSettings checked;
  TLM_RETURN_IF_ERROR(ReadLimits(arguments, checked));
  std::string tenant;
  if (!defaults) {
    TLM_ASSIGN_OR_RETURN(tenant, TenantFrom(arguments));
  }
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, KeyStore::Missing::kEmpty));
  KeyFile& file = store->file();
  TLM_RETURN_IF_ERROR(ReadLimits(arguments, defaults ? file.defaults : file.tenants[tenant]));
  if (!defaults && file.tenants[tenant] == LimitSettings()) file.tenants.erase(tenant);
  return Save(*store);
}

absl::StatusOr<CertificateEntry> CertificateFrom(const KeysArguments& arguments) {
  CertificateEntry entry;
  int names = 0;
  for (const CertificateName kind : {CertificateName::kSubject, CertificateName::kUri,
                                     CertificateName::kDns, CertificateName::kCommonName}) {
    if (!arguments.Has(CertificateNameKey(kind))) continue;
    ++names;
    entry.kind = kind;
    TLM_ASSIGN_OR_RETURN(entry.name, arguments.Required(CertificateNameKey(kind)));
    if (entry.name.size() > kMaxCertificateNameBytes) {
      return InvalidArgument("--{} has {} bytes, the limit is {}", CertificateNameKey(kind),
                             entry.name.size(), kMaxCertificateNameBytes);
    }
  }
  if (names != 1) return InvalidArgument("give one of --subject, --uri, --dns and --common_name");
  if (arguments.Has("remove")) return entry;
  TLM_ASSIGN_OR_RETURN(entry.tenant, TenantFrom(arguments));
  TLM_ASSIGN_OR_RETURN(entry.role, RoleFrom(arguments));
  return entry;
}

absl::Status Certificate(const KeysArguments& arguments, Clock&, PrintText) {
  TLM_ASSIGN_OR_RETURN(CertificateEntry entry, CertificateFrom(arguments));
  const bool remove = arguments.Has("remove");
  TLM_ASSIGN_OR_RETURN(const auto store, OpenStore(arguments, remove ? KeyStore::Missing::kError
                                                                     : KeyStore::Missing::kEmpty));
  const size_t erased =
      std::erase_if(store->file().certificates, [&entry](const CertificateEntry& other) {
        return other.kind == entry.kind && other.name == entry.name;
      });
  if (remove && erased == 0) {
    return NotFound("the file has no certificate with this {}", CertificateNameKey(entry.kind));
  }
  if (!remove) store->file().certificates.push_back(std::move(entry));
  return Save(*store);
}

constexpr KeysCommand kCommands[] = {
    {"add",
     "--tenant=T [--role=inference|admin] [--expires=90d]",
     "make a key and print it; it is not shown again",
     kAddFlags,
     {},
     Add},
    {"list", "", "keys, certificates and limits; no secrets", kListFlags, {}, List},
    {"disable", "--id=ID", "refuse a key", kIdFlags, {}, Disable},
    {"enable", "--id=ID", "accept a disabled key again", kIdFlags, {}, Enable},
    {"remove", "--id=ID", "remove a key from the file", kIdFlags, {}, Remove},
    {"rotate",
     "--id=ID [--grace=24h] [--expires=90d]",
     "make a key with the same tenant and role and print it; the old key expires after the grace",
     kRotateFlags,
     {},
     Rotate},
    {"limits",
     "--tenant=T|--defaults [--requests_per_minute=N] [--tokens_per_minute=N] "
     "[--max_concurrent_requests=N] [--max_priority=N]",
     "set limits of a tenant, for all its keys together; N may be none, or default", kLimitsFlags,
     kLimitsSwitches, Limits},
    {"certificate",
     "--subject=DN|--uri=URI|--dns=NAME|--common_name=NAME --tenant=T [--role=R], or --remove",
     "map a client certificate to the tenant", kCertificateFlags, kCertificateSwitches,
     Certificate},
};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::span<const KeysCommand> KeysCommands() { return kCommands; }

absl::StatusOr<KeysArguments> KeysArguments::Parse(std::span<const char* const> arguments,
                                                   std::span<const std::string_view> flags,
                                                   std::span<const std::string_view> switches) {
  KeysArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with("--")) {
      return InvalidArgument("unexpected argument {}: flags are written --name=value",
                             Quoted(argument));
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(2, equals == argument.npos ? equals : equals - 2);
    std::string value;
    if (Contains(switches, name)) {
      if (equals != argument.npos) return InvalidArgument("--{} takes no value", name);
    } else if (!Contains(flags, name)) {
      std::vector<std::string_view> known(flags.begin(), flags.end());
      known.insert(known.end(), switches.begin(), switches.end());
      const std::string nearest = DidYouMean(name, known, "--");
      return InvalidArgument("no flag {}{}", Quoted(argument.substr(0, equals)),
                             nearest.empty() ? "; tlm-keys --help lists them" : nearest);
    } else if (equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return InvalidArgument("--{} needs a value", name);
    }
    if (!parsed.values_.emplace(name, std::move(value)).second) {
      return InvalidArgument("--{} is given twice", name);
    }
  }
  return parsed;
}

std::optional<std::string> KeysArguments::Find(std::string_view flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? std::nullopt : std::optional<std::string>(found->second);
}

absl::StatusOr<std::string> KeysArguments::Required(std::string_view flag) const {
  std::optional<std::string> value = Find(flag);
  if (!value.has_value() || value->empty()) return InvalidArgument("--{} is required", flag);
  return *std::move(value);
}

}  // namespace tlm
