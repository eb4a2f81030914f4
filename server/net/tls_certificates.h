// Holds the current certificates of the TLS ports and reloads them when their files change.
#ifndef TLM_SERVER_NET_TLS_CERTIFICATES_H_
#define TLM_SERVER_NET_TLS_CERTIFICATES_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/auth/watched_file.h"
#include "server/net/listener_options.h"
#include "server/net/tls_material.h"

namespace tlm {

// New files take effect together, once they are complete, match and are valid, so key and
// certificate may be written one after the other. Until then handshakes use the old ones.
// Connections keep the certificates of their handshake. Thread-safe.
class TlsCertificates {
 public:
  // Loads TlsFiles that are enabled(). Errors as CheckTlsMaterial's, or the file cannot be read.
  // `clock` outlives this object.
  static absl::StatusOr<std::unique_ptr<TlsCertificates>> Load(const TlsFiles& files, Clock& clock);

  const TlsFiles& files() const { return files_; }
  // Shared with handshakes in progress. Never null.
  std::shared_ptr<const TlsMaterial> Current() const;
  // Returns the expiry of the server's certificate in effect.
  absl::Time expires() const { return Current()->expires; }

  // Checks whether the files have changed; cheap if they have not. True: the new content is in
  // effect. Returns an error, at every call until the files are correct, when the content is
  // invalid, in which case the old content stays in effect, or when the certificate in effect has
  // expired. Called by one thread at a time.
  absl::StatusOr<bool> Reload();

 private:
  TlsCertificates(const TlsFiles& files, Clock& clock);
  absl::Status Read();
  absl::Status ReadFile(WatchedFile& file, std::string& text);

  const TlsFiles files_;
  Clock& clock_;
  // Used by the reloading thread, like all members up to the mutex.
  WatchedFile certificate_file_;
  WatchedFile key_file_;
  WatchedFile client_ca_file_;
  TlsPem read_;
  bool in_effect_ = false;  // true for the content read last
  bool key_open_ = false;   // the key is world-readable
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> material_ TLM_GUARDED_BY(mutex_);
};

// Makes the credentials of one port, for TLS 1.2 and newer, and HTTP/2 by ALPN. Every handshake
// uses the certificates that are current when it begins. `certificates` outlives the credentials;
// the credentials must outlive the server, because gRPC stores only their core.
std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    const TlsCertificates& certificates);

}  // namespace tlm

#endif  // TLM_SERVER_NET_TLS_CERTIFICATES_H_
