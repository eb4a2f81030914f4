#include "client/cli/base/tls_files.h"

#include <fmt/format.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/certificate.h"

namespace tlm::cli {
namespace {

// Null for files that CheckTlsFiles skips.
BioPtr Open(const std::string& path) {
  struct stat status = {};
  if (path.empty() || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  return BioPtr(BIO_new_file(path.c_str(), "r"));
}

absl::StatusOr<X509Ptr> ReadCertificate(BIO& file, const std::string& path) {
  X509Ptr certificate(PEM_read_bio_X509(&file, nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(fmt::format("{}: holds no certificate in PEM", path));
}

// Called for encrypted keys; OpenSSL would prompt at the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<KeyPtr> ReadKey(BIO& file, const std::string& path) {
  KeyPtr key(PEM_read_bio_PrivateKey(&file, nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      fmt::format("{}: holds no private key in PEM, or one with a passphrase", path));
}

absl::Status CheckNotExpired(const X509& certificate, const std::string& path) {
  const absl::Time ends = TimeOf(X509_get0_notAfter(&certificate));
  if (ends == absl::InfinitePast() || absl::Now() <= ends) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: the certificate has expired on {}", path, TimeText(ends)));
}

absl::Status CheckClientPair(const std::string& certificate_path, const std::string& key_path) {
  const BioPtr certificate_file = Open(certificate_path);
  const BioPtr key_file = Open(key_path);
  if (certificate_file == nullptr || key_file == nullptr) return absl::OkStatus();
  const auto certificate = ReadCertificate(*certificate_file, certificate_path);
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadKey(*key_file, key_path);
  if (!key.ok()) return key.status();
  if (!IsKeyOf(**certificate, **key)) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: is not the key of the first certificate in {}", key_path, certificate_path));
  }
  return CheckNotExpired(**certificate, certificate_path);
}

}  // namespace

absl::Status CheckTlsFiles(const client::ClientOptions& options) {
  if (const BioPtr file = Open(options.ca_file); file != nullptr) {
    const auto authority = ReadCertificate(*file, options.ca_file);
    if (!authority.ok()) return authority.status();
  }
  return CheckClientPair(options.client_certificate_file, options.client_key_file);
}

}  // namespace tlm::cli
