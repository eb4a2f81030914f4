#include "server/process/credentials.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "model/base/errors.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);

// Returns whether new content took effect; logs a fault, and once that it is over.
bool Took(const absl::StatusOr<bool>& reloaded, const char* what, std::string& fault) {
  if (!reloaded.ok()) {
    std::string message(reloaded.status().message());
    if (message != fault) {
      spdlog::error("{}: reload failed, the old files stay in use: {}", what, message);
    }
    fault = std::move(message);
    return false;
  }
  if (!std::exchange(fault, {}).empty() && !*reloaded) spdlog::info("{}: valid again", what);
  return *reloaded;
}

// Warns when options may have been forgotten.
void WarnOffLoopback(const ServiceOptions& options) {
  if (IsLoopback(options.host) && IsLoopback(options.admin_host)) return;
  if (!options.credentials_required()) {
    spdlog::warn(
        "no --api_keys and no --tls_client_ca: any client that connects can use this server");
  } else if (!options.tls.enabled()) {
    spdlog::warn("--insecure: API keys reach this server unencrypted");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(const ServiceOptions& options,
                                                               Metrics& metrics, Clock& clock) {
  std::unique_ptr<Credentials> all(new Credentials(metrics, clock));
  if (options.tls.enabled()) {
    TLM_ASSIGN_OR_RETURN(all->tls_, TlsCertificates::Load(options.tls, clock));
    all->TellTls();
  }
  if (!options.api_keys_file.empty()) {
    TLM_ASSIGN_OR_RETURN(std::unique_ptr<KeyFileAuthenticator> keys,
                         KeyFileAuthenticator::Load(options.api_keys_file, clock));
    all->keys_ = keys.get();
    all->authenticator_ = std::move(keys);
    metrics.SetApiKeys(all->keys_->CountAccepted());
  } else if (!options.tls.client_ca.empty()) {
    all->authenticator_ = std::make_unique<CertificateAuthenticator>();
  } else {
    all->authenticator_ = std::make_unique<AllowAllAuthenticator>();
  }
  WarnOffLoopback(options);
  if (all->tls_ != nullptr || all->keys_ != nullptr) {
    all->heartbeat_.emplace(kInterval, [raw = all.get()] { raw->Refresh(); });
  }
  return all;
}

void Credentials::Refresh() {
  if (tls_ != nullptr) RefreshTls();
  if (keys_ != nullptr) RefreshKeys();
}

void Credentials::RefreshTls() {
  const std::string before = tls_fault_;
  const bool took = Took(tls_->Reload(), "TLS", tls_fault_);
  if (took) TellTls();
  if (took || (tls_fault_ != before && !tls_fault_.empty())) metrics_.CountCertificateReload(took);
}

void Credentials::TellTls() const {
  const std::shared_ptr<const TlsMaterial> material = tls_->Current();
  spdlog::info("TLS: certificate {}, valid until {}", LogQuoted(material->subject),
               absl::FormatTime(absl::RFC3339_sec, material->expires, absl::UTCTimeZone()));
  for (const std::string& warning : material->warnings) spdlog::warn("TLS: {}", warning);
  metrics_.SetCertificateExpiry(material->expires);
}

void Credentials::RefreshKeys() {
  const std::string before = keys_fault_;
  const bool took = Took(keys_->Reload(), "API keys", keys_fault_);
  // Counts every time: keys expire without any change of the file.
  const int64_t accepted = keys_->CountAccepted();
  metrics_.SetApiKeys(accepted);
  if (took) spdlog::info("API keys: reloaded, {} valid", accepted);
  if (took || (keys_fault_ != before && !keys_fault_.empty())) metrics_.CountApiKeyReload(took);
}

}  // namespace tlm
