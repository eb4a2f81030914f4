#include "server/auth/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kSalt[] = "000102030405060708090a0b0c0d0e0f";
constexpr char kHash[] = "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f";

std::string Key(const std::string& id, const std::string& more = "") {
  return R"({"id": ")" + id + R"(", "salt": ")" + kSalt + R"(", "hash": ")" + kHash +
         R"(", "tenant": "acme")" + more + "}";
}

std::string WithKeys(const std::string& keys) {
  return R"({"version": 1, "keys": [)" + keys + "]}";
}

TEST(KeyFileTest, ReadsEverythingAndWritesTheSame) {
  const std::string text = R"({
    "version": 1,
    "defaults": {"requests_per_minute": 600},
    "tenants": {"acme": {"tokens_per_minute": 1000, "max_concurrent_requests": 2},
                "batch": {"requests_per_minute": null}},
    "keys": [)" +
                           Key("3f9a0c51d2e7",
                               R"(, "role": "admin", "created": "2026-01-31T12:00:00Z",
                         "expires": "2027-01-31T00:00:00+01:00", "disabled": true)") +
                           R"(],
    "certificates": [{"common_name": "ops-1", "tenant": "ops", "role": "admin"},
                     {"uri": "spiffe://d/acme", "tenant": "acme"}]})";
  const KeyFile file = ParseKeyFile(text).value();
  ASSERT_EQ(file.keys.size(), 1u);
  EXPECT_EQ(file.keys[0].role, Role::kAdmin);
  EXPECT_EQ(file.keys[0].expires, absl::FromUnixSeconds(1801350000));
  EXPECT_TRUE(file.keys[0].disabled);
  ASSERT_EQ(file.certificates.size(), 2u);
  EXPECT_EQ(file.certificates[1].kind, CertificateName::kUri);
  const std::string written = KeyFileText(file);
  const KeyFile again = ParseKeyFile(written).value();
  EXPECT_EQ(KeyFileText(again), written);
  EXPECT_EQ(again.keys[0].expires, file.keys[0].expires);
}

TEST(KeyFileTest, LimitsAreTheTenantsOwnThenTheDefaultsThenNone) {
  const KeyFile file = *ParseKeyFile(R"({"version": 1,
    "defaults": {"requests_per_minute": 600},
    "tenants": {"acme": {"tokens_per_minute": 1000, "max_priority": 5},
                "batch": {"requests_per_minute": null, "max_priority": null}}})");
  EXPECT_EQ(file.LimitsOf("acme"), (TenantLimits{600, 1000, 0, 5}));
  EXPECT_EQ(file.LimitsOf("batch"), (TenantLimits{0, 0, 0, kMaxPriority}));
  EXPECT_EQ(file.LimitsOf("another"), (TenantLimits{600, 0, 0, 0}));
}

TEST(KeyFileTest, AKeyIsForInferenceAndDoesNotExpireUnlessItSaysSo) {
  const KeyFile file = *ParseKeyFile(WithKeys(Key("3f9a0c51d2e7")));
  EXPECT_EQ(file.keys[0].role, Role::kInference);
  EXPECT_EQ(file.keys[0].expires, absl::InfiniteFuture());
  EXPECT_FALSE(file.keys[0].disabled);
}

TEST(KeyFileTest, FaultsAreRefusedByPlace) {
  const std::pair<std::string, const char*> kCases[] = {
      {"", "not valid JSON"},
      {"[]", "the file is an array of 0, it must be an object"},
      {"{}", "version"},
      {R"({"version": 2})", "version"},
      {R"({"version": 1.0})", "version"},
      {R"({"version": "1"})", "version"},
      {R"({"version": 1, "key": []})", "no field 'key'"},
      {R"({"version": 1, "version": 1})", "occurs twice"},
      {R"({"version": 1, "keys": {}})", "keys is an object, it must be an array"},
      {R"({"version": 1, "keys": [[[[[[[[[[]]]]]]]]]})", "deep"},
      {WithKeys("7"), "keys[0] is 7, it must be an object"},
      {WithKeys("{}"), "keys[0].id is missing"},
      {WithKeys(Key("3F9A0C51D2E7")), "keys[0].id"},
      {WithKeys(Key("3f9a0c51d2e7") + "," + Key("3f9a0c51d2e7")), "keys[1]: another key"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "role": "root")")),
       "keys[0].role is 'root', it must be inference or admin"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "roles": [])")), "no field 'roles'"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "disabled": 1)")), "keys[0].disabled"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "role": null)")), "keys[0].role is null"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "expires": "tomorrow")")), "keys[0].expires"},
      {WithKeys(Key("3f9a0c51d2e7", R"(, "expires": "infinite-future")")), "keys[0].expires"},
      {R"({"version": 1, "tenants": {"": {}}})", "not the name of a tenant"},
      {R"({"version": 1, "tenants": {"a": {"requests_per_minute": 0}}})",
       "tenants.a.requests_per_minute"},
      {R"({"version": 1, "tenants": {"a": {"requests_per_minute": -1}}})",
       "tenants.a.requests_per_minute"},
      {R"({"version": 1, "tenants": {"a": {"tokens_per_minute": 1.5}}})",
       "tenants.a.tokens_per_minute"},
      {R"({"version": 1, "defaults": {"max_concurrent_requests": 1e30}})",
       "defaults.max_concurrent_requests"},
      {R"({"version": 1, "tenants": {"a": {"max_priority": 101}}})",
       "tenants.a.max_priority is 101, it must be an integer between 0 and 100"},
      {R"({"version": 1, "tenants": {"a": {"max_priority": -1}}})", "tenants.a.max_priority"},
      {R"({"version": 1, "certificates": [{"tenant": "a"}]})", "certificates[0] has 0"},
      {R"({"version": 1, "certificates": [{"dns": "a", "uri": "b", "tenant": "a"}]})",
       "certificates[0] has 2"},
      {R"({"version": 1, "certificates": [{"dns": "a", "tenant": "a"},
                                                 {"dns": "a", "tenant": "b"}]})",
       "certificates[1]: another entry"}};
  for (const auto& [text, place] : kCases) {
    EXPECT_THAT(ParseKeyFile(text), IsInvalidArgument(place)) << text;
  }
}

TEST(KeyFileTest, DoesNotRepeatAKeyThatWasPutIntoTheWrongPlace) {
  const std::string secret = "tlm_0123456789ab_" + std::string(64, 'f');
  for (const std::string& text :
       {R"({"version": 1, ")" + secret + R"(": 1})",
        R"({"version": 1, "tenants": {")" + secret + R"(": {}}})",
        R"({"version": 1, "keys": ")" + secret + "\"}", WithKeys("\"" + secret + "\""),
        WithKeys(Key("3f9a0c51d2e7", R"(, "disabled": ")" + secret + "\"")),
        WithKeys(Key("3f9a0c51d2e7", R"(, "role": ")" + secret + "\"")),
        WithKeys(Key("3f9a0c51d2e7", R"(, "expires": ")" + secret + "\""))}) {
    EXPECT_THAT(ParseKeyFile(text), StatusIs(kInvalid, Not(HasSubstr("ffff"))));
  }
}

TEST(KeyFileTest, NamesOfTenants) {
  EXPECT_TRUE(IsTenantName("Acme, Inc. (EU)"));
  EXPECT_TRUE(IsTenantName(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string(), std::string(65, 'a'), std::string(" a"), std::string("a "),
        std::string("a\nb"), std::string("\xc3\xa4"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(IsTenantName(bad));
  }
}

}  // namespace
}  // namespace tlm
