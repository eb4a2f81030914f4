// Defines API keys: their format, their generation, and the hash that a server stores.
//
//   tlm_3f9a0c51d2e7_9b1c...   "tlm_", 12 digits of an id, "_", 64 digits of a secret
//
// Digits are hexadecimal, in lower case. The id is no secret: it names the key in files and logs.
// The secret has 256 random bits. The server keeps HMAC-SHA-256 of the whole key under its own
// random salt. A fast hash suffices: slow password hashes protect guessable secrets, and 256 random
// bits are not guessable.
#ifndef TLM_SERVER_AUTH_API_KEY_H_
#define TLM_SERVER_AUTH_API_KEY_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

inline constexpr size_t kApiKeyIdDigits = 12;
inline constexpr size_t kApiKeySecretDigits = 64;
inline constexpr size_t kApiKeySaltBytes = 16;
inline constexpr size_t kApiKeyHashBytes = 32;

// Views of the key's text.
struct ApiKeyParts {
  std::string_view id;
  std::string_view secret;
};

// Returns nullopt if `text` is not a key.
std::optional<ApiKeyParts> ParseApiKey(std::string_view text);
bool IsApiKeyId(std::string_view text);

// The salted hash of a key, in bytes.
struct ApiKeyHash {
  std::string salt;
  std::string hash;
};

struct NewApiKey {
  std::string id;
  std::string text;  // the key itself; only for its owner
  ApiKeyHash hash;
};

// Makes a key from the operating system's random numbers; INTERNAL if there are none.
absl::StatusOr<NewApiKey> MakeApiKey();

// Returns whether `text` is the key of `hash`. Takes the same time wherever the two differ.
bool Matches(const ApiKeyHash& hash, std::string_view text);

// Convert bytes to lower-case hexadecimal digits and back; nullopt unless the text has two digits
// per byte.
std::string HexText(std::string_view bytes);
std::optional<std::string> BytesOfHex(std::string_view text);

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_API_KEY_H_
