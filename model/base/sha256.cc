#include "model/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::string> Sha256Hex(std::string_view bytes) {
  std::array<unsigned char, 32> digest;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return Internal("OpenSSL cannot compute SHA-256");
  }
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace tlm
