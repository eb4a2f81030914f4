// SHA-256 digests.
#ifndef TLM_MODEL_BASE_SHA256_H_
#define TLM_MODEL_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

using Sha256Digest = std::array<uint8_t, 32>;

// INTERNAL if the library refuses, as OpenSSL does when its configuration forbids the digest.
absl::StatusOr<Sha256Digest> Sha256(std::string_view bytes);

// 64 lower-case hexadecimal digits, as sha256sum prints them. INTERNAL as above.
absl::StatusOr<std::string> Sha256Hex(std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_SHA256_H_
