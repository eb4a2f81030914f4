// Owning pointers to OpenSSL's certificates and keys, and functions on them.
#ifndef TLM_MODEL_BASE_CERTIFICATE_H_
#define TLM_MODEL_BASE_CERTIFICATE_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace tlm {

template <auto kFree>
struct OpenSslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpenSslDeleter<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, OpenSslDeleter<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslDeleter<EVP_PKEY_free>>;

// True if `key` is the private key of `certificate`. Clears OpenSSL's errors of this thread.
inline bool IsKeyOf(const X509& certificate, const EVP_PKEY& key) {
  const bool matches = X509_check_private_key(&certificate, &key) == 1;
  ERR_clear_error();
  return matches;
}

// Returns absl::InfinitePast() for a malformed time.
inline absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm calendar = {};
  if (time == nullptr || ASN1_TIME_to_tm(time, &calendar) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&calendar));
}

// Formats `time` as "2026-02-28T12:00:00Z".
inline std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

}  // namespace tlm

#endif  // TLM_MODEL_BASE_CERTIFICATE_H_
