#include "client/cli/base/tls_files.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <ctime>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace tlm::cli {
namespace {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

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
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return absl::OkStatus();
  const absl::Time ends = absl::FromTimeT(timegm(&end));
  if (absl::Now() <= ends) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: the certificate has expired on {}", path,
                  absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ends, absl::UTCTimeZone())));
}

absl::Status CheckClientPair(const std::string& certificate_path, const std::string& key_path) {
  const BioPtr certificate_file = Open(certificate_path);
  const BioPtr key_file = Open(key_path);
  if (certificate_file == nullptr || key_file == nullptr) return absl::OkStatus();
  const auto certificate = ReadCertificate(*certificate_file, certificate_path);
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadKey(*key_file, key_path);
  if (!key.ok()) return key.status();
  const bool match = X509_check_private_key(certificate->get(), key->get()) == 1;
  ERR_clear_error();
  if (!match) {
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
