#include "server/auth/key_file_authenticator.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/base/errors.h"
#include "server/auth/api_key.h"
#include "server/auth/key_file.h"

namespace tlm {

// A key file with indexes for lookups. Immutable.
class KeyFileAuthenticator::Index {
 public:
  explicit Index(KeyFile file) : file_(std::move(file)) {
    for (const KeyEntry& key : file_.keys) keys_.emplace(key.id, &key);
    for (const CertificateEntry& entry : file_.certificates) {
      certificates_.emplace(std::make_pair(entry.kind, std::string_view(entry.name)), &entry);
    }
  }
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // Returns nullopt unless `text` is a known, enabled key that has not expired.
  std::optional<Principal> ByKey(std::string_view text, absl::Time now) const {
    const std::optional<ApiKeyParts> parts = ParseApiKey(text);
    if (!parts.has_value()) return std::nullopt;
    const auto found = keys_.find(parts->id);
    // Makes an unknown id take as long as a wrong secret.
    static const ApiKeyHash* const kUnknown =
        new ApiKeyHash{std::string(kApiKeySaltBytes, '\0'), std::string(kApiKeyHashBytes, '\0')};
    const KeyEntry* const key = found == keys_.end() ? nullptr : found->second;
    const bool matches = Matches(key == nullptr ? *kUnknown : key->hash, text);
    if (key == nullptr || !matches || key->disabled || now >= key->expires) return std::nullopt;
    return PrincipalOf(key->tenant, key->role, key->id);
  }

  int64_t CountAccepted(absl::Time now) const {
    return std::count_if(file_.keys.begin(), file_.keys.end(),
                         [now](const KeyEntry& key) { return !key.disabled && now < key.expires; });
  }

  std::optional<Principal> ByCertificate(const PeerCertificate& certificate) const {
    const CertificateEntry* entry = Find(CertificateName::kSubject, certificate.subject);
    for (const std::string& uri : certificate.uris) {
      if (entry == nullptr) entry = Find(CertificateName::kUri, uri);
    }
    for (const std::string& name : certificate.dns_names) {
      if (entry == nullptr) entry = Find(CertificateName::kDns, name);
    }
    if (entry == nullptr) entry = Find(CertificateName::kCommonName, certificate.common_name);
    if (entry == nullptr) return std::nullopt;
    return PrincipalOf(entry->tenant, entry->role, certificate.subject);
  }

 private:
  const CertificateEntry* Find(CertificateName kind, std::string_view name) const {
    const auto found = certificates_.find({kind, name});
    return found == certificates_.end() ? nullptr : found->second;
  }

  Principal PrincipalOf(const std::string& tenant, Role role, std::string credential) const {
    Principal principal;
    principal.tenant = tenant;
    principal.credential = std::move(credential);
    principal.may_administer = role == Role::kAdmin;
    principal.limits = file_.LimitsOf(tenant);
    return principal;
  }

  const KeyFile file_;
  // These point into file_.
  std::unordered_map<std::string_view, const KeyEntry*> keys_;
  std::map<std::pair<CertificateName, std::string_view>, const CertificateEntry*> certificates_;
};

KeyFileAuthenticator::KeyFileAuthenticator(const std::string& path, Clock& clock)
    : clock_(clock), file_(path, kMaxKeyFileBytes) {}

KeyFileAuthenticator::~KeyFileAuthenticator() = default;

absl::StatusOr<std::unique_ptr<KeyFileAuthenticator>> KeyFileAuthenticator::Load(
    const std::string& path, Clock& clock) {
  std::unique_ptr<KeyFileAuthenticator> authenticator(new KeyFileAuthenticator(path, clock));
  TLM_RETURN_IF_ERROR(authenticator->Reload().status());
  return authenticator;
}

absl::StatusOr<bool> KeyFileAuthenticator::Reload() {
  TLM_ASSIGN_OR_RETURN(std::optional<FileContent> content, file_.ReadIfChanged());
  if (!content.has_value()) {
    TLM_RETURN_IF_ERROR(fault_);
    return false;
  }
  if ((content->mode & S_IWOTH) != 0) {
    fault_ = FailedPrecondition("{}: world-writable: chmod o-w", file_.path());
    text_.reset();
    return fault_;
  }
  if (content->text == text_) {
    TLM_RETURN_IF_ERROR(fault_);
    return false;
  }
  text_ = std::move(content->text);
  absl::StatusOr<KeyFile> parsed = ParseKeyFile(*text_);
  fault_ = parsed.ok() ? absl::OkStatus() : WithContext(parsed.status(), file_.path());
  TLM_RETURN_IF_ERROR(fault_);
  auto index = std::make_shared<const Index>(*std::move(parsed));
  MutexLock lock(&mutex_);
  index_.swap(index);
  return true;
}

std::shared_ptr<const KeyFileAuthenticator::Index> KeyFileAuthenticator::Current() const {
  MutexLock lock(&mutex_);
  return index_;
}

int64_t KeyFileAuthenticator::CountAccepted() const {
  return Current()->CountAccepted(clock_.Now());
}

absl::StatusOr<Principal> KeyFileAuthenticator::Authenticate(const CallCredentials& credentials,
                                                             Role role) const {
  const std::shared_ptr<const Index> index = Current();
  std::optional<Principal> principal;
  if (!credentials.authorization.empty()) {
    if (credentials.authorization.size() > 1) return BadCredentials();
    const std::optional<std::string_view> key = BearerToken(credentials.authorization.front());
    if (key.has_value()) principal = index->ByKey(*key, clock_.Now());
  } else if (credentials.certificate.has_value()) {
    principal = index->ByCertificate(*credentials.certificate);
  } else {
    return MissingCredentials();
  }
  if (!principal.has_value()) return BadCredentials();
  return WithRole(*std::move(principal), role);
}

}  // namespace tlm
