// SHA-256 digests.
#ifndef TLM_MODEL_BASE_SHA256_H_
#define TLM_MODEL_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct evp_md_ctx_st;  // OpenSSL's

namespace tlm {

using Sha256Digest = std::array<uint8_t, 32>;

// INTERNAL if the library refuses, as OpenSSL does when its configuration forbids the digest.
absl::StatusOr<Sha256Digest> Sha256(std::string_view bytes);

// Computes the digest of bytes that come piece by piece.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void Append(std::string_view bytes);
  // Call once, after the last piece. INTERNAL as above.
  absl::StatusOr<Sha256Digest> Finish();

 private:
  evp_md_ctx_st* const context_;
  bool ok_;
};

// Writes the digest as 64 lower-case hexadecimal digits.
std::string Hex(const Sha256Digest& digest);

// Returns the digest as 64 lower-case hexadecimal digits, like sha256sum. INTERNAL as above.
absl::StatusOr<std::string> Sha256Hex(std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_SHA256_H_
