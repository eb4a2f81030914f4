#include "model/base/gmac.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr unsigned char kKey[16] = {};
constexpr unsigned char kNonce[12] = {};

}  // namespace

// GMAC: data are authenticated, not encrypted.
Gmac::Gmac()
    : context_(EVP_CIPHER_CTX_new()),
      ok_(context_ != nullptr &&
          EVP_EncryptInit_ex(context_, EVP_aes_128_gcm(), nullptr, kKey, kNonce) == 1) {}

Gmac::~Gmac() { EVP_CIPHER_CTX_free(context_); }

void Gmac::Append(std::string_view bytes) {
  constexpr size_t kMaxAtOnce = size_t{1} << 30;  // lengths are ints there
  while (ok_ && !bytes.empty()) {
    const size_t count = std::min(bytes.size(), kMaxAtOnce);
    int taken = 0;
    ok_ = EVP_EncryptUpdate(context_, nullptr, &taken,
                            reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(count)) == 1;
    bytes.remove_prefix(count);
  }
}

absl::StatusOr<GmacTag> Gmac::Finish() {
  GmacTag tag;
  unsigned char none[EVP_MAX_BLOCK_LENGTH];
  int written = 0;
  if (!ok_ || EVP_EncryptFinal_ex(context_, none, &written) != 1 ||
      EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                          tag.data()) != 1) {
    return Internal("OpenSSL cannot compute AES-GMAC");
  }
  return tag;
}

}  // namespace tlm
