#include "model/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<Sha256Digest> Sha256(std::string_view bytes) {
  Sha256Digest digest;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return Internal("OpenSSL cannot compute SHA-256");
  }
  return digest;
}

absl::StatusOr<std::string> Sha256Hex(std::string_view bytes) {
  TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, Sha256(bytes));
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace tlm
