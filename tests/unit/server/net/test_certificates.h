// Certificates for tests, made on the spot.
#ifndef TLM_TESTS_UNIT_SERVER_NET_TEST_CERTIFICATES_H_
#define TLM_TESTS_UNIT_SERVER_NET_TEST_CERTIFICATES_H_

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace tlm {

struct TestCertificate {
  std::string certificate;  // PEM, as the next
  std::string key;
};

inline std::string TextOf(BIO* bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  return std::string(text, static_cast<size_t>(size));
}

// Signed by itself, valid from `begins` to `ends`. A `passphrase` locks the key.
inline TestCertificate MakeTestCertificate(absl::Time begins, absl::Time ends,
                                           const char* passphrase = nullptr) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x509(X509_new(), X509_free);
  X509_set_version(x509.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
  ASN1_TIME_set(X509_getm_notBefore(x509.get()), absl::ToTimeT(begins));
  ASN1_TIME_set(X509_getm_notAfter(x509.get()), absl::ToTimeT(ends));
  X509_set_pubkey(x509.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(x509.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x509.get(), name);
  X509_sign(x509.get(), key.get(), EVP_sha256());
  const std::unique_ptr<BIO, decltype(&BIO_free)> certificate(BIO_new(BIO_s_mem()), BIO_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> private_key(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(certificate.get(), x509.get());
  PEM_write_bio_PrivateKey(private_key.get(), key.get(),
                           passphrase == nullptr ? nullptr : EVP_aes_128_cbc(), nullptr, 0, nullptr,
                           const_cast<char*>(passphrase));
  return {TextOf(certificate.get()), TextOf(private_key.get())};
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_NET_TEST_CERTIFICATES_H_
