#include "server/auth/api_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/auth/authenticator.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::Optional;

TEST(ApiKeyTest, MadeKeysParseAndMatchTheirHash) {
  const absl::StatusOr<NewApiKey> key = MakeApiKey();
  ASSERT_THAT(key, IsOk());
  const std::optional<ApiKeyParts> parts = ParseApiKey(key->text);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->id, key->id);
  EXPECT_EQ(parts->secret.size(), kApiKeySecretDigits);
  EXPECT_TRUE(Matches(key->hash, key->text));
  EXPECT_EQ(key->hash.hash.find(key->text), std::string::npos);
}

TEST(ApiKeyTest, NoTwoKeysShareAnything) {
  const NewApiKey a = *MakeApiKey();
  const NewApiKey b = *MakeApiKey();
  EXPECT_NE(a.id, b.id);
  EXPECT_NE(a.hash.salt, b.hash.salt);
  EXPECT_NE(ParseApiKey(a.text)->secret, ParseApiKey(b.text)->secret);
  EXPECT_FALSE(Matches(a.hash, b.text));
}

TEST(ApiKeyTest, EveryDigitOfTheKeyCounts) {
  const NewApiKey key = *MakeApiKey();
  for (size_t i = 0; i < key.text.size(); ++i) {
    std::string other = key.text;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_FALSE(Matches(key.hash, other)) << i;
  }
  EXPECT_FALSE(Matches(key.hash, ""));
  EXPECT_FALSE(Matches({key.hash.salt, ""}, ""));
}

// HMAC-SHA-256 under a key of 16 bytes, as any other program computes it:
// printf %s "tlm_..." | openssl dgst -sha256 -mac HMAC -macopt hexkey:000102...0f
TEST(ApiKeyTest, HashesAsOtherProgramsDo) {
  const std::string text = "tlm_0123456789ab_" + std::string(64, '0');
  const ApiKeyHash hash{
      *BytesOfHex("000102030405060708090a0b0c0d0e0f"),
      *BytesOfHex("fde022132ab67041d5c6d9e309fda7aa614cbe7966f91aab38d722bf3288a709")};
  EXPECT_TRUE(Matches(hash, text));
}

TEST(ApiKeyTest, RefusesWhatIsNoKey) {
  const std::string good = "tlm_0123456789ab_" + std::string(64, 'f');
  ASSERT_TRUE(ParseApiKey(good).has_value());
  for (const std::string& bad :
       {std::string(), std::string("tlm_"), good.substr(1), good + "0", "TLM" + good.substr(3),
        "tlm_0123456789AB_" + std::string(64, 'f'), "tlm_0123456789abf" + std::string(64, 'f'),
        "tlm_0123456789ab_" + std::string(63, 'f') + "g",
        "tlm_0123456789ab_" + std::string(63, 'f') + std::string(1, '\0')}) {
    EXPECT_FALSE(ParseApiKey(bad).has_value()) << bad;
  }
}

TEST(ApiKeyTest, HexadecimalGoesThereAndBack) {
  const std::string bytes("\x00\x7f\xff", 3);
  EXPECT_EQ(HexText(bytes), "007fff");
  EXPECT_EQ(BytesOfHex("007fff"), bytes);
  EXPECT_EQ(BytesOfHex("007ff"), std::nullopt);
  EXPECT_EQ(BytesOfHex("007ffG"), std::nullopt);
  EXPECT_EQ(BytesOfHex("007FFF"), std::nullopt);
}

TEST(BearerTokenTest, TakesTheTokenBehindTheScheme) {
  EXPECT_THAT(BearerToken("Bearer abc"), Optional(std::string_view("abc")));
  EXPECT_THAT(BearerToken("bEARER   a-b._~+/="), Optional(std::string_view("a-b._~+/=")));
}

TEST(BearerTokenTest, RefusesEverythingElse) {
  for (const std::string_view bad :
       {"", "Bearer", "Bearer ", "Bearer    ", "Bearerabc", "Basic abc", " Bearer abc",
        "Bearer abc ", "Bearer a b", "Bearer a,b", "Bearer\tabc", "Bearer a\n"}) {
    EXPECT_EQ(BearerToken(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace tlm
