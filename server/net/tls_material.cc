#include "server/net/tls_material.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>

#include "model/base/certificate.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX_free>>;

// OpenSSL's own reason for a failure; empties the thread's list of errors.
std::string OpenSslReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "no reason given" : reason;
  ERR_clear_error();
  return text;
}

BioPtr Reader(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// gRPC takes text up to the first zero byte.
absl::Status CheckText(const std::string& pem, const std::string& file) {
  if (pem.empty()) return FailedPrecondition("{}: is empty", file);
  if (pem.find('\0') == pem.npos) return absl::OkStatus();
  return FailedPrecondition("{}: is not text: PEM is expected", file);
}

absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(const std::string& pem,
                                                      const std::string& file) {
  TLM_RETURN_IF_ERROR(CheckText(pem, file));
  const BioPtr bio = Reader(pem);
  if (bio == nullptr) return Internal("{}: {}", file, OpenSslReason());
  std::vector<X509Ptr> certificates;
  ERR_clear_error();
  while (X509* const read = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(read);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = OpenSslReason();
  if (!at_end) {
    return FailedPrecondition("{}: certificate {} cannot be read: {}", file,
                              certificates.size() + 1, reason);
  }
  if (certificates.empty()) return FailedPrecondition("{}: holds no certificate in PEM", file);
  return certificates;
}

// Called for keys with a passphrase; OpenSSL would otherwise ask at the terminal.
int NotePassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<KeyPtr> ReadKey(const std::string& pem, const std::string& file) {
  TLM_RETURN_IF_ERROR(CheckText(pem, file));
  const BioPtr bio = Reader(pem);
  bool has_passphrase = false;
  KeyPtr key(bio == nullptr
                 ? nullptr
                 : PEM_read_bio_PrivateKey(bio.get(), nullptr, NotePassphrase, &has_passphrase));
  ERR_clear_error();
  if (has_passphrase) {
    return FailedPrecondition("{}: the key has a passphrase; encrypted keys are not supported",
                              file);
  }
  if (key == nullptr) return FailedPrecondition("{}: holds no private key in PEM", file);
  return key;
}

absl::Status CheckValidity(const X509& certificate, const std::string& file, absl::Time now) {
  const absl::Time begins = TimeOf(X509_get0_notBefore(&certificate));
  const absl::Time ends = TimeOf(X509_get0_notAfter(&certificate));
  if (now < begins) {
    return FailedPrecondition("{}: the certificate is not valid before {}", file, TimeText(begins));
  }
  if (now > ends) {
    return FailedPrecondition("{}: the certificate has expired on {}", file, TimeText(ends));
  }
  return absl::OkStatus();
}

std::string SubjectOf(const X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr) return "";
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(&certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return size <= 0 ? "" : std::string(text, static_cast<size_t>(size));
}

// Does what gRPC will do with the files at the first handshake.
absl::Status TryOut(const std::vector<X509Ptr>& chain, EVP_PKEY& key, const TlsFiles& names) {
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  ERR_clear_error();
  if (context == nullptr) return Internal("OpenSSL: {}", OpenSslReason());
  bool taken = SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (size_t i = 1; taken && i < chain.size(); ++i) {
    taken = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  if (!taken) {
    return FailedPrecondition("{}: the TLS library refuses it: {}", names.certificate,
                              OpenSslReason());
  }
  if (SSL_CTX_use_PrivateKey(context.get(), &key) != 1) {
    return FailedPrecondition("{}: the TLS library refuses it: {}", names.key, OpenSslReason());
  }
  return absl::OkStatus();
}

void WarnOfChain(const std::vector<X509Ptr>& chain, const std::string& file, absl::Time now,
                 std::vector<std::string>& warnings) {
  if (X509_check_purpose(chain.front().get(), X509_PURPOSE_SSL_SERVER, 0) != 1) {
    warnings.push_back(fmt::format("{}: the certificate is not made for servers", file));
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    const absl::Status valid = CheckValidity(*chain[i], file, now);
    if (!valid.ok()) {
      warnings.push_back(
          fmt::format("certificate {} of the chain: {}", i + 1, std::string(valid.message())));
    }
    if (X509_check_issued(chain[i].get(), chain[i - 1].get()) == X509_V_OK) continue;
    warnings.push_back(
        fmt::format("{}: certificate {} is not the issuer of the one before it", file, i + 1));
  }
}

absl::Status CheckAuthorities(const std::string& pem, const std::string& file, absl::Time now,
                              std::vector<std::string>& warnings) {
  TLM_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities, ReadCertificates(pem, file));
  size_t valid = 0;
  for (const X509Ptr& authority : authorities) {
    const absl::Status status = CheckValidity(*authority, file, now);
    if (status.ok()) {
      ++valid;
    } else {
      warnings.emplace_back(status.message());
    }
  }
  if (valid > 0) return absl::OkStatus();
  return FailedPrecondition("{}: none of its {} certificates is valid now", file,
                            authorities.size());
}

}  // namespace

absl::StatusOr<TlsMaterial> CheckTlsMaterial(TlsPem pem, const TlsFiles& names, absl::Time now) {
  TlsMaterial material;
  TLM_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain,
                       ReadCertificates(pem.certificate, names.certificate));
  TLM_ASSIGN_OR_RETURN(const KeyPtr key, ReadKey(pem.key, names.key));
  X509& own = *chain.front();
  TLM_RETURN_IF_ERROR(CheckValidity(own, names.certificate, now));
  if (!IsKeyOf(own, *key)) {
    return FailedPrecondition("{}: is not the key of the first certificate in {}", names.key,
                              names.certificate);
  }
  TLM_RETURN_IF_ERROR(TryOut(chain, *key, names));
  WarnOfChain(chain, names.certificate, now, material.warnings);
  if (!names.client_ca.empty()) {
    TLM_RETURN_IF_ERROR(CheckAuthorities(pem.client_ca, names.client_ca, now, material.warnings));
  }
  material.expires = TimeOf(X509_get0_notAfter(&own));
  material.subject = SubjectOf(own);
  material.pem = std::move(pem);
  return material;
}

}  // namespace tlm
