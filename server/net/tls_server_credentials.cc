#include "server/net/tls_server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>

#include "model/base/mutex.h"

namespace tlm {
namespace {

grpc_ssl_client_certificate_request_type RequestType(const TlsFiles& files) {
  if (files.client_ca.empty()) return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  return files.client_certificate_required
             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
}

// gRPC's C++ interface has credentials that reload by themselves, from files it does not check
// against each other; its C interface asks before each handshake.
class TlsServerCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsServerCredentials(const TlsCertificates& certificates)
      : certificates_(certificates),
        core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                RequestType(certificates.files()), Fetch, this))) {}
  ~TlsServerCredentials() override { grpc_server_credentials_release(core_); }

  // Calls are authenticated by our own services.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  // Before each handshake, on gRPC's threads.
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
    // gRPC insists on authorities here, also where no client is asked for a certificate.
    const std::string& authorities = pem.client_ca.empty() ? pem.certificate : pem.client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsCertificates& certificates_;
  Mutex mutex_;
  // What gRPC has. Shared with certificates_ until that has newer ones.
  std::shared_ptr<const TlsMaterial> given_ TLM_GUARDED_BY(mutex_);
  grpc_server_credentials* const core_;  // last: may ask at once
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    const TlsCertificates& certificates) {
  return std::make_shared<TlsServerCredentials>(certificates);
}

}  // namespace tlm
