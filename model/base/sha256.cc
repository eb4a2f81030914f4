#include "model/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "model/base/errors.h"

namespace tlm {
namespace {

absl::Status Refused() { return Internal("OpenSSL cannot compute SHA-256"); }

}  // namespace

absl::StatusOr<Sha256Digest> Sha256(std::string_view bytes) {
  Sha256Digest digest;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return Refused();
  }
  return digest;
}

Sha256Stream::Sha256Stream()
    : context_(EVP_MD_CTX_new()),
      ok_(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1) {}

Sha256Stream::~Sha256Stream() { EVP_MD_CTX_free(context_); }

void Sha256Stream::Append(std::string_view bytes) {
  ok_ = ok_ && EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1;
}

absl::StatusOr<Sha256Digest> Sha256Stream::Finish() {
  Sha256Digest digest;
  if (!ok_ || EVP_DigestFinal_ex(context_, digest.data(), nullptr) != 1) return Refused();
  return digest;
}

std::string Hex(const Sha256Digest& digest) {
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

absl::StatusOr<std::string> Sha256Hex(std::string_view bytes) {
  TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, Sha256(bytes));
  return Hex(digest);
}

}  // namespace tlm
