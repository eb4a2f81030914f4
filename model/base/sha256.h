// SHA-256 digests, as sha256sum prints them.
#ifndef TLM_MODEL_BASE_SHA256_H_
#define TLM_MODEL_BASE_SHA256_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// 64 lower-case hexadecimal digits. INTERNAL if the library refuses, as OpenSSL does when its
// configuration forbids the digest.
absl::StatusOr<std::string> Sha256Hex(std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_SHA256_H_
