// Checks the files of --ca_file, --client_cert and --client_key.
#ifndef TLM_CLIENT_CLI_BASE_TLS_FILES_H_
#define TLM_CLIENT_CLI_BASE_TLS_FILES_H_

#include "absl/status/status.h"
#include "client/cpp/channel.h"

namespace tlm::cli {

// gRPC reports these errors only on connecting, with less detail. INVALID_ARGUMENT, naming the
// file, for a file without certificate or private key in PEM, for an expired client certificate and
// for a key of another certificate. Skips unreadable files and pipes, which can be read only once.
absl::Status CheckTlsFiles(const client::ClientOptions& options);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TLS_FILES_H_
