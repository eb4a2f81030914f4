// What can be wrong with the files of --ca_file, --client_cert and --client_key.
#ifndef TLM_CLIENT_CLI_BASE_TLS_FILES_H_
#define TLM_CLIENT_CLI_BASE_TLS_FILES_H_

#include "absl/status/status.h"
#include "client/cpp/channel.h"

namespace tlm::cli {

// gRPC finds these faults only when it connects, and says less of them. INVALID_ARGUMENT, with the
// name of the file, for one without a certificate or private key in PEM, for a client certificate
// that has expired and for a key that belongs to another one. What is no file, as a pipe that can
// be read only once, and what cannot be read is left to the client library.
absl::Status CheckTlsFiles(const client::ClientOptions& options);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TLS_FILES_H_
