// Checks certificate, key and trusted authorities of a TLS port before gRPC gets them: gRPC would
// accept a mismatch and fail every handshake.
#ifndef TLM_SERVER_NET_TLS_MATERIAL_H_
#define TLM_SERVER_NET_TLS_MATERIAL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/net/listener_options.h"

namespace tlm {

// The contents of TlsFiles.
struct TlsPem {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty: no client certificates are requested

  bool operator==(const TlsPem&) const = default;
};

struct TlsMaterial {
  TlsPem pem;
  absl::Time expires;                 // expiry of the server's own certificate
  std::string subject;                // that certificate's subject, for the log
  std::vector<std::string> warnings;  // possible problems of clients; each names its file
};

// FAILED_PRECONDITION, in one line that begins with the name of the file at fault, when a file has
// no PEM of its kind, the key is encrypted or belongs to another certificate, the server's
// certificate has expired or is not valid yet, all client authorities have expired, or the TLS
// library refuses one of them, for example as too weak. Thread-safe.
absl::StatusOr<TlsMaterial> CheckTlsMaterial(TlsPem pem, const TlsFiles& names, absl::Time now);

}  // namespace tlm

#endif  // TLM_SERVER_NET_TLS_MATERIAL_H_
