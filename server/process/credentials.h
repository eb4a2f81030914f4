// Holds the credentials of this server and of its callers, and reloads them when their files
// change.
#ifndef TLM_SERVER_PROCESS_CREDENTIALS_H_
#define TLM_SERVER_PROCESS_CREDENTIALS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "server/auth/authenticator.h"
#include "server/auth/key_file_authenticator.h"
#include "server/config/service_options.h"
#include "server/net/tls_certificates.h"
#include "server/observe/metrics.h"
#include "server/process/heartbeat.h"

namespace tlm {

// The certificates and API keys of the options. Their files are checked once a second. A valid
// change takes effect; an invalid one is logged, and the old content stays in effect. Thread-safe.
class Credentials {
 public:
  // Every error is one line that names file and fault. `metrics` and `clock` outlive this object,
  // which outlives all ports.
  static absl::StatusOr<std::unique_ptr<Credentials>> Load(const ServiceOptions& options,
                                                           Metrics& metrics, Clock& clock);

  const Authenticator& authenticator() const { return *authenticator_; }
  // Returns null without TLS.
  const TlsCertificates* tls() const { return tls_.get(); }

 private:
  Credentials(Metrics& metrics, Clock& clock) : metrics_(metrics), clock_(clock) {}

  void Refresh();
  void RefreshTls();
  void RefreshKeys();
  void TellTls() const;

  Metrics& metrics_;
  Clock& clock_;
  std::unique_ptr<TlsCertificates> tls_;
  std::unique_ptr<Authenticator> authenticator_;
  KeyFileAuthenticator* keys_ = nullptr;  // authenticator_, if there is a key file
  // The faults logged last, so that one fault gives one line; used by the heartbeat's thread.
  std::string tls_fault_;
  std::string keys_fault_;
  std::optional<Heartbeat> heartbeat_;  // last: uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_CREDENTIALS_H_
