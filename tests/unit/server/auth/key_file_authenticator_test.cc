#include "server/auth/key_file_authenticator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "model/base/errors.h"
#include "server/auth/api_key.h"
#include "server/auth/key_file.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr absl::StatusCode kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

class KeyFileAuthenticatorTest : public ::testing::Test {
 protected:
  // Adds a key to the file to be written; its text.
  std::string AddKey(const std::string& tenant, Role role = Role::kInference,
                     absl::Time expires = absl::InfiniteFuture(), bool disabled = false) {
    const NewApiKey key = *MakeApiKey();
    file_.keys.push_back({key.id, key.hash, tenant, role, std::nullopt, expires, disabled});
    return key.text;
  }

  std::string Write() const { return dir_.Write("keys.json", KeyFileText(file_)); }

  void Load() {
    absl::StatusOr<std::unique_ptr<KeyFileAuthenticator>> loaded =
        KeyFileAuthenticator::Load(Write(), clock_);
    ASSERT_THAT(loaded, IsOk());
    keys_ = *std::move(loaded);
  }

  absl::StatusOr<Principal> Ask(const std::string& authorization, Role role = Role::kInference) {
    CallCredentials credentials;
    credentials.authorization.push_back(authorization);
    return keys_->Authenticate(credentials, role);
  }

  absl::StatusOr<Principal> AskWith(const PeerCertificate& certificate) {
    CallCredentials credentials;
    credentials.certificate = certificate;
    return keys_->Authenticate(credentials, Role::kInference);
  }

  void ExpectBad(const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(kUnauthenticated, std::string(BadCredentials().message())));
    EXPECT_EQ(ReasonOf(status), "BAD_CREDENTIALS");
  }

  TempDir dir_;
  FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  KeyFile file_;
  std::unique_ptr<KeyFileAuthenticator> keys_;
};

TEST_F(KeyFileAuthenticatorTest, KnowsTheTenantItsLimitsAndTheKey) {
  file_.tenants["acme"].requests_per_minute = 7;
  const std::string key = AddKey("acme");
  AddKey("other");
  Load();
  const absl::StatusOr<Principal> caller = Ask("Bearer " + key);
  ASSERT_THAT(caller, IsOk());
  EXPECT_EQ(caller->tenant, "acme");
  EXPECT_EQ(caller->credential, file_.keys[0].id);
  EXPECT_EQ(caller->limits.requests_per_minute, 7);
  EXPECT_FALSE(caller->may_administer);
}

TEST_F(KeyFileAuthenticatorTest, TellsMissingFromBadAndNothingElse) {
  const std::string key = AddKey("acme");
  const std::string disabled = AddKey("acme", Role::kInference, absl::InfiniteFuture(), true);
  Load();
  const absl::Status missing = keys_->Authenticate({}, Role::kInference).status();
  EXPECT_THAT(missing, StatusIs(kUnauthenticated, std::string(BadCredentials().message())));
  EXPECT_EQ(ReasonOf(missing), "MISSING_CREDENTIALS");
  std::string wrong = key;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  ExpectBad(Ask("Bearer " + wrong).status());
  ExpectBad(Ask("Bearer tlm_000000000000_" + std::string(64, '0')).status());
  ExpectBad(Ask("Bearer " + disabled).status());
  ExpectBad(Ask("Bearer " + key + "0").status());
  ExpectBad(Ask("Basic " + key).status());
  ExpectBad(Ask(key).status());
  ExpectBad(Ask("").status());
}

TEST_F(KeyFileAuthenticatorTest, RefusesTwoValuesEvenIfOneIsGood) {
  const std::string value = "Bearer " + AddKey("acme");
  Load();
  CallCredentials credentials;
  credentials.authorization = {value, value};
  ExpectBad(keys_->Authenticate(credentials, Role::kInference).status());
}

TEST_F(KeyFileAuthenticatorTest, KeysExpire) {
  const std::string key = AddKey("acme", Role::kInference, clock_.Now() + absl::Seconds(1));
  Load();
  EXPECT_THAT(Ask("Bearer " + key), IsOk());
  EXPECT_EQ(keys_->CountAccepted(), 1);
  clock_.Advance(absl::Seconds(1));
  ExpectBad(Ask("Bearer " + key).status());
  EXPECT_EQ(keys_->CountAccepted(), 0);
}

TEST_F(KeyFileAuthenticatorTest, TheRoleAdminIsNeededForAdminAndEnoughForInference) {
  const std::string user = AddKey("acme");
  const std::string admin = AddKey("ops", Role::kAdmin);
  Load();
  const absl::Status refused = Ask("Bearer " + user, Role::kAdmin).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("admin")));
  EXPECT_EQ(ReasonOf(refused), "ROLE_REQUIRED");
  EXPECT_THAT(Ask("Bearer " + admin, Role::kAdmin), IsOk());
  EXPECT_THAT(Ask("Bearer " + admin, Role::kInference), IsOk());
}

TEST_F(KeyFileAuthenticatorTest, TheMostSpecificNameOfACertificateCounts) {
  file_.certificates = {{CertificateName::kCommonName, "c", "by_name", Role::kInference},
                        {CertificateName::kDns, "d", "by_dns", Role::kInference},
                        {CertificateName::kUri, "u", "by_uri", Role::kInference},
                        {CertificateName::kSubject, "CN=c", "by_subject", Role::kInference}};
  Load();
  EXPECT_EQ(AskWith({"CN=c", "c", {"d"}, {"u"}})->tenant, "by_subject");
  EXPECT_EQ(AskWith({"CN=x", "c", {"d"}, {"x", "u"}})->tenant, "by_uri");
  EXPECT_EQ(AskWith({"CN=x", "c", {"x", "d"}, {"x"}})->tenant, "by_dns");
  EXPECT_EQ(AskWith({"CN=x", "c", {}, {}})->tenant, "by_name");
  EXPECT_EQ(AskWith({"CN=x", "c", {}, {}})->credential, "CN=x");
  // A name of one kind is none of another.
  ExpectBad(AskWith({"c", "d", {"u"}, {"c"}}).status());
}

TEST_F(KeyFileAuthenticatorTest, AKeyThatIsShownCountsInsteadOfTheCertificate) {
  file_.certificates = {{CertificateName::kCommonName, "c", "ops", Role::kInference}};
  const std::string key = AddKey("acme");
  Load();
  const std::string good = "Bearer " + key;
  CallCredentials credentials{{good}, PeerCertificate{"CN=c", "c", {}, {}}};
  EXPECT_EQ(keys_->Authenticate(credentials, Role::kInference)->tenant, "acme");
  credentials.authorization = {"Bearer nonsense"};
  ExpectBad(keys_->Authenticate(credentials, Role::kInference).status());
}

TEST_F(KeyFileAuthenticatorTest, ChangesTakeEffectAtTheNextReload) {
  const std::string old = AddKey("acme");
  Load();
  file_.keys[0].disabled = true;
  const std::string fresh = AddKey("acme");
  Write();
  EXPECT_THAT(Ask("Bearer " + old), IsOk());
  EXPECT_THAT(keys_->Reload(), IsOk());
  ExpectBad(Ask("Bearer " + old).status());
  EXPECT_THAT(Ask("Bearer " + fresh), IsOk());
  EXPECT_FALSE(*keys_->Reload());
}

TEST_F(KeyFileAuthenticatorTest, ABrokenFileLeavesTheOldOneInForceUntilItIsMended) {
  const std::string key = AddKey("acme");
  Load();
  dir_.Write("keys.json", "{");
  EXPECT_THAT(keys_->Reload(), StatusIs(kInvalid, HasSubstr("keys.json: is not valid JSON")));
  EXPECT_THAT(keys_->Reload(), StatusIs(kInvalid, HasSubstr("keys.json: is not valid JSON")));
  EXPECT_THAT(Ask("Bearer " + key), IsOk());
  std::filesystem::remove(dir_.File("keys.json"));
  EXPECT_THAT(keys_->Reload(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("keys.json")));
  EXPECT_THAT(Ask("Bearer " + key), IsOk());
  file_.keys.clear();
  Write();
  EXPECT_THAT(keys_->Reload(), IsOk());
  ExpectBad(Ask("Bearer " + key).status());
}

TEST_F(KeyFileAuthenticatorTest, FollowsALinkThatLeadsElsewhere) {
  const std::string first = AddKey("acme");
  const std::string a = dir_.Write("a.json", KeyFileText(file_));
  file_.keys.clear();
  const std::string second = AddKey("acme");
  const std::string b = dir_.Write("b.json", KeyFileText(file_));
  std::filesystem::create_symlink(a, dir_.File("link.json"));
  keys_ = *KeyFileAuthenticator::Load(dir_.File("link.json"), clock_);
  EXPECT_THAT(Ask("Bearer " + first), IsOk());
  std::filesystem::create_symlink(b, dir_.File("next"));
  std::filesystem::rename(dir_.File("next"), dir_.File("link.json"));
  EXPECT_TRUE(*keys_->Reload());
  ExpectBad(Ask("Bearer " + first).status());
  EXPECT_THAT(Ask("Bearer " + second), IsOk());
}

TEST_F(KeyFileAuthenticatorTest, DoesNotStartWithAFileItCannotTrust) {
  const auto fault = [this](const std::string& path) {
    return KeyFileAuthenticator::Load(path, clock_).status();
  };
  EXPECT_THAT(fault(dir_.File("none.json")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.json")));
  EXPECT_THAT(fault(dir_.path()), StatusIs(kPrecondition, HasSubstr("not a regular file")));
  EXPECT_THAT(fault(dir_.Write("empty.json", "")), StatusIs(kInvalid, HasSubstr("empty.json")));
  const std::string open = dir_.Write("open.json", KeyFileText(file_));
  ASSERT_EQ(chmod(open.c_str(), 0666), 0);
  EXPECT_THAT(fault(open), StatusIs(kPrecondition, HasSubstr("chmod o-w")));
  ASSERT_EQ(chmod(open.c_str(), 0644), 0);
  EXPECT_THAT(fault(open), IsOk());
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(fault(dir_.File("pipe")), StatusIs(kPrecondition, HasSubstr("not a regular file")));
}

TEST(CertificateAuthenticatorTest, TheCommonNameIsATenantThatMayInferAndNotAdminister) {
  const CertificateAuthenticator certificates;
  CallCredentials credentials;
  EXPECT_EQ(ReasonOf(certificates.Authenticate(credentials, Role::kInference).status()),
            "MISSING_CREDENTIALS");
  credentials.certificate = PeerCertificate{"CN=acme,O=x", "acme", {}, {}};
  const absl::StatusOr<Principal> caller = certificates.Authenticate(credentials, Role::kInference);
  ASSERT_THAT(caller, IsOk());
  EXPECT_EQ(caller->tenant, "acme");
  EXPECT_EQ(caller->credential, "CN=acme,O=x");
  EXPECT_EQ(caller->limits.max_priority, 0);
  EXPECT_THAT(certificates.Authenticate(credentials, Role::kAdmin),
              StatusIs(absl::StatusCode::kPermissionDenied, _));
  credentials.certificate->common_name = "";
  EXPECT_EQ(ReasonOf(certificates.Authenticate(credentials, Role::kInference).status()),
            "BAD_CREDENTIALS");
}

}  // namespace
}  // namespace tlm
