// TLS for gRPC's ports, with certificates that change while they listen.
#ifndef TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_
#define TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/tls_certificates.h"

namespace tlm {

// For one port; TLS 1.2 and newer, HTTP/2 by ALPN. Every handshake takes the certificates that are
// current when it begins. `certificates` outlives the credentials, which outlive the server that
// listens with them: gRPC keeps their core alone.
std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    const TlsCertificates& certificates);

}  // namespace tlm

#endif  // TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_
