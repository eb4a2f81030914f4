// TLS for gRPC's ports, with certificates that change while they listen.
#ifndef TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_
#define TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/net/tls_certificates.h"

namespace tlm {

// For one port; TLS 1.2 and newer, HTTP/2 by ALPN. Every handshake uses the certificates that are
// current when it begins. `certificates` outlives the credentials, which outlive the server, as
// gRPC keeps only their core.
std::shared_ptr<grpc::ServerCredentials> MakeTlsServerCredentials(
    const TlsCertificates& certificates);

}  // namespace tlm

#endif  // TLM_SERVER_NET_TLS_SERVER_CREDENTIALS_H_
