// The file of API keys, the metadata `authorization`, and keys. The first byte chooses.
#include <string>

#include "model/base/errors.h"
#include "server/auth/api_key.h"
#include "server/auth/authenticator.h"
#include "server/auth/key_file.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

void CheckFile(std::string_view json) {
  const auto file = ParseKeyFile(json);
  if (!file.ok()) return CheckRefusal(file.status());
  for (const KeyEntry& key : file->keys) {
    TLM_CHECK(IsApiKeyId(key.id) && IsTenantName(key.tenant));
    TLM_CHECK(key.hash.hash.size() == kApiKeyHashBytes);
    TLM_CHECK(!Matches(key.hash, json));
  }
  for (const CertificateEntry& entry : file->certificates) {
    TLM_CHECK(!entry.name.empty() && IsTenantName(entry.tenant));
    Consume(static_cast<uint64_t>(file->LimitsOf(entry.tenant).requests_per_minute));
  }
  const std::string text = KeyFileText(*file);
  const auto again = ParseKeyFile(text);
  TLM_CHECK(again.ok() && KeyFileText(*again) == text);
}

void CheckHeader(std::string_view value) {
  const auto token = BearerToken(value);
  TLM_CHECK(!token.has_value() || token->size() < value.size());
  const auto parts = ParseApiKey(token.value_or(value));
  TLM_CHECK(!parts.has_value() ||
            (IsApiKeyId(parts->id) && parts->secret.size() == kApiKeySecretDigits));
  const auto bytes = BytesOfHex(value);
  TLM_CHECK(!bytes.has_value() || 2 * bytes->size() == value.size());
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  if (input.Byte() % 4 == 0) {
    tlm::CheckHeader(input.Rest());
  } else {
    tlm::CheckFile(input.Rest());
  }
  return 0;
}
