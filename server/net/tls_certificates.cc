#include "server/net/tls_certificates.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <sys/stat.h>

#include <optional>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

// A bundle of every public authority has a quarter of this size.
constexpr size_t kMaxPemBytes = size_t{1} << 20;

grpc_ssl_client_certificate_request_type RequestType(const TlsFiles& files) {
  if (files.client_ca.empty()) return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  return files.client_certificate_required
             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
}

// gRPC's C++ interface has credentials that reload by themselves, but from files that it does not
// check against each other; its C interface asks before each handshake.
class TlsServerCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsServerCredentials(const TlsCertificates& certificates)
      : certificates_(certificates),
        core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                RequestType(certificates.files()), Fetch, this))) {}
  ~TlsServerCredentials() override { grpc_server_credentials_release(core_); }

  // Does nothing: the server's own services authenticate calls.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  // Called before each handshake, on gRPC's threads.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<TlsServerCredentials*>(self)->FetchConfig(config);
  }

  grpc_ssl_certificate_config_reload_status FetchConfig(
      grpc_ssl_server_certificate_config** config) {
    const std::shared_ptr<const TlsMaterial> current = certificates_.Current();
    {
      MutexLock lock(&mutex_);
      if (current == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
      given_ = current;
    }
    const TlsPem& pem = current->pem;
    const grpc_ssl_pem_key_cert_pair pair{pem.key.c_str(), pem.certificate.c_str()};
    // gRPC requires authorities here, even when clients are not asked for a certificate.
    const std::string& authorities = pem.client_ca.empty() ? pem.certificate : pem.client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsCertificates& certificates_;
  Mutex mutex_;
  // The material that gRPC has. Shared with certificates_ until that has newer material.
  std::shared_ptr<const TlsMaterial> given_ TLM_GUARDED_BY(mutex_);
  grpc_server_credentials* const core_;  // last: may call Fetch at once
};

}  // namespace

TlsCertificates::TlsCertificates(const TlsFiles& files, Clock& clock)
    : files_(files),
      clock_(clock),
      certificate_file_(files.certificate, kMaxPemBytes),
      key_file_(files.key, kMaxPemBytes),
      client_ca_file_(files.client_ca, kMaxPemBytes) {}

absl::StatusOr<std::unique_ptr<TlsCertificates>> TlsCertificates::Load(const TlsFiles& files,
                                                                       Clock& clock) {
  std::unique_ptr<TlsCertificates> certificates(new TlsCertificates(files, clock));
  TLM_RETURN_IF_ERROR(certificates->Reload().status());
  return certificates;
}

std::shared_ptr<const TlsMaterial> TlsCertificates::Current() const {
  MutexLock lock(&mutex_);
  return material_;
}

absl::Status TlsCertificates::ReadFile(WatchedFile& file, std::string& text) {
  TLM_ASSIGN_OR_RETURN(std::optional<FileContent> content, file.ReadIfChanged());
  if (!content.has_value()) return absl::OkStatus();
  if (&file == &key_file_) key_open_ = (content->mode & S_IROTH) != 0;
  if (content->text == text) return absl::OkStatus();
  text = std::move(content->text);
  in_effect_ = false;
  return absl::OkStatus();
}

absl::Status TlsCertificates::Read() {
  TLM_RETURN_IF_ERROR(ReadFile(certificate_file_, read_.certificate));
  TLM_RETURN_IF_ERROR(ReadFile(key_file_, read_.key));
  if (files_.client_ca.empty()) return absl::OkStatus();
  return ReadFile(client_ca_file_, read_.client_ca);
}

absl::StatusOr<bool> TlsCertificates::Reload() {
  TLM_RETURN_IF_ERROR(Read());
  const absl::Time now = clock_.Now();
  const std::shared_ptr<const TlsMaterial> current = Current();
  if (in_effect_) {
    if (now <= current->expires) return false;
    return FailedPrecondition(
        "{}: the certificate in use has expired on {}", files_.certificate,
        absl::FormatTime(absl::RFC3339_sec, current->expires, absl::UTCTimeZone()));
  }
  // Tried again every time until it works: a certificate that is not valid yet will be.
  TLM_ASSIGN_OR_RETURN(TlsMaterial fresh, CheckTlsMaterial(read_, files_, now));
  in_effect_ = true;
  if (current != nullptr && current->pem == fresh.pem) return false;
  if (key_open_) {
    fresh.warnings.push_back(fmt::format("{}: world-readable private key: chmod o-r", files_.key));
  }
  auto shared = std::make_shared<const TlsMaterial>(std::move(fresh));
  MutexLock lock(&mutex_);
  material_.swap(shared);
  return true;
}

std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    const TlsCertificates& certificates) {
  return std::make_shared<TlsServerCredentials>(certificates);
}

}  // namespace tlm
