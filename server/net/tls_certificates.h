// The certificates of the TLS ports, as the files hold them now.
#ifndef TLM_SERVER_NET_TLS_CERTIFICATES_H_
#define TLM_SERVER_NET_TLS_CERTIFICATES_H_

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

// New files take effect together, once they are whole, belong together and are valid: key and
// certificate may be written one after the other. Until then handshakes go on with what was there.
// Connections keep what they began with. Thread-safe.
class TlsCertificates {
 public:
  // Of TlsFiles that are enabled(). Errors as CheckTlsMaterial's, or the file cannot be read.
  // `clock` outlives the object.
  static absl::StatusOr<std::unique_ptr<TlsCertificates>> Load(const TlsFiles& files, Clock& clock);

  const TlsFiles& files() const { return files_; }
  // Shared with handshakes that began before it was replaced. Never null.
  std::shared_ptr<const TlsMaterial> Current() const;
  // When the server's certificate that is in effect expires.
  absl::Time expires() const { return Current()->expires; }

  // Looks whether the files have changed, which costs next to nothing when they have not. True:
  // what they hold now is in effect. An error, at every call until the files are correct: what they
  // hold now cannot be used and what was in effect stays, or the certificate in effect has expired.
  // One thread at a time.
  absl::StatusOr<bool> Reload();

 private:
  TlsCertificates(const TlsFiles& files, Clock& clock);
  absl::Status Read();
  absl::Status ReadFile(WatchedFile& file, std::string& text);

  const TlsFiles files_;
  Clock& clock_;
  // Of the thread that reloads, as what follows up to the mutex.
  WatchedFile certificate_file_;
  WatchedFile key_file_;
  WatchedFile client_ca_file_;
  TlsPem read_;
  bool in_effect_ = false;  // what was read is
  bool key_open_ = false;   // others on this machine may read the key
  mutable Mutex mutex_;
  std::shared_ptr<const TlsMaterial> material_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_TLS_CERTIFICATES_H_
