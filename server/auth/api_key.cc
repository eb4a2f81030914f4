#include "server/auth/api_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr std::string_view kPrefix = "tlm_";
constexpr std::string_view kDigits = "0123456789abcdef";

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return kDigits.find(c) != kDigits.npos; });
}

// Empty if the library fails.
std::string Hash(std::string_view salt, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), salt.data(), static_cast<int>(salt.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &size) == nullptr) {
    return "";
  }
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return Internal("no random numbers: OpenSSL's generator does not work");
  }
  return bytes;
}

}  // namespace

bool IsApiKeyId(std::string_view text) { return text.size() == kApiKeyIdDigits && IsHex(text); }

std::optional<ApiKeyParts> ParseApiKey(std::string_view text) {
  constexpr size_t kSize = kPrefix.size() + kApiKeyIdDigits + 1 + kApiKeySecretDigits;
  if (text.size() != kSize || !text.starts_with(kPrefix)) return std::nullopt;
  const ApiKeyParts parts{text.substr(kPrefix.size(), kApiKeyIdDigits),
                          text.substr(kSize - kApiKeySecretDigits)};
  const bool separated = text[kPrefix.size() + kApiKeyIdDigits] == '_';
  if (!separated || !IsApiKeyId(parts.id) || !IsHex(parts.secret)) return std::nullopt;
  return parts;
}

absl::StatusOr<NewApiKey> MakeApiKey() {
  NewApiKey key;
  TLM_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kApiKeyIdDigits / 2));
  TLM_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kApiKeySecretDigits / 2));
  TLM_ASSIGN_OR_RETURN(key.hash.salt, RandomBytes(kApiKeySaltBytes));
  key.id = HexText(id);
  key.text = fmt::format("{}{}_{}", kPrefix, key.id, HexText(secret));
  key.hash.hash = Hash(key.hash.salt, key.text);
  if (key.hash.hash.size() != kApiKeyHashBytes) return Internal("OpenSSL refuses HMAC-SHA-256");
  return key;
}

bool Matches(const ApiKeyHash& hash, std::string_view text) {
  const std::string own = Hash(hash.salt, text);
  return own.size() == kApiKeyHashBytes && hash.hash.size() == kApiKeyHashBytes &&
         CRYPTO_memcmp(own.data(), hash.hash.data(), kApiKeyHashBytes) == 0;
}

std::string HexText(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<std::string> BytesOfHex(std::string_view text) {
  if (text.size() % 2 != 0 || !IsHex(text)) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(kDigits.find(text[i]) * 16 + kDigits.find(text[i + 1]));
  }
  return bytes;
}

}  // namespace tlm
