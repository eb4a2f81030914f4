#include "server/net/tls_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/server/net/test_certificates.h"

namespace tlm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TlsCertificatesTest : public ::testing::Test {
 protected:
  TestCertificate Make(absl::Duration begins = -absl::Hours(1),
                       absl::Duration ends = absl::Hours(1)) const {
    return MakeTestCertificate(start_ + begins, start_ + ends);
  }

  void Put(const TestCertificate& pair) {
    dir_.Write("tls.crt", pair.certificate);
    ASSERT_EQ(chmod(dir_.Write("tls.key", pair.key).c_str(), 0600), 0);
  }

  absl::Status Load() {
    auto loaded = TlsCertificates::Load(files_, clock_);
    if (!loaded.ok()) return loaded.status();
    certificates_ = *std::move(loaded);
    return absl::OkStatus();
  }

  std::string Current() const { return certificates_->Current()->pem.certificate; }

  TempDir dir_;
  const absl::Time start_ = absl::FromUnixSeconds(1'800'000'000);
  FakeClock clock_{start_};
  TlsFiles files_{dir_.File("tls.crt"), dir_.File("tls.key"), "", true};
  std::unique_ptr<TlsCertificates> certificates_;
};

TEST_F(TlsCertificatesTest, LoadsAPairWithItsSubjectAndExpiry) {
  Put(Make());
  ASSERT_THAT(Load(), IsOk());
  EXPECT_EQ(certificates_->expires(), start_ + absl::Hours(1));
  EXPECT_EQ(certificates_->Current()->subject, "CN=localhost");
  EXPECT_THAT(certificates_->Current()->warnings, IsEmpty());
  EXPECT_FALSE(*certificates_->Reload());
}

TEST_F(TlsCertificatesTest, TakesANewPairOnceItIsWhole) {
  const TestCertificate old = Make();
  const TestCertificate fresh = Make();
  Put(old);
  ASSERT_THAT(Load(), IsOk());
  dir_.Write("tls.key", fresh.key);
  EXPECT_THAT(certificates_->Reload(), IsFailedPrecondition("tls.key: is not the key", "tls.crt"));
  EXPECT_EQ(Current(), old.certificate);
  dir_.Write("tls.crt", fresh.certificate.substr(0, fresh.certificate.size() / 2));
  EXPECT_THAT(certificates_->Reload(), IsFailedPrecondition("tls.crt"));
  EXPECT_EQ(Current(), old.certificate);
  dir_.Write("tls.crt", fresh.certificate);
  EXPECT_TRUE(*certificates_->Reload());
  EXPECT_EQ(Current(), fresh.certificate);
  EXPECT_FALSE(*certificates_->Reload());
}

TEST_F(TlsCertificatesTest, AVanishedFileChangesNothing) {
  const TestCertificate pair = Make();
  Put(pair);
  ASSERT_THAT(Load(), IsOk());
  std::filesystem::remove(files_.key);
  EXPECT_THAT(certificates_->Reload(), IsNotFound("tls.key"));
  EXPECT_EQ(Current(), pair.certificate);
  Put(pair);
  EXPECT_FALSE(*certificates_->Reload());
}

TEST_F(TlsCertificatesTest, ACertificateOfTheFutureWaitsForItsTime) {
  const TestCertificate old = Make();
  const TestCertificate next = Make(absl::Minutes(10), absl::Hours(9));
  Put(old);
  ASSERT_THAT(Load(), IsOk());
  Put(next);
  EXPECT_THAT(certificates_->Reload(), IsFailedPrecondition("not valid before"));
  clock_.Advance(absl::Minutes(10));
  EXPECT_TRUE(*certificates_->Reload());
  EXPECT_EQ(Current(), next.certificate);
}

TEST_F(TlsCertificatesTest, TellsWhenTheOneInUseHasExpired) {
  Put(Make());
  ASSERT_THAT(Load(), IsOk());
  clock_.Advance(absl::Hours(2));
  EXPECT_THAT(certificates_->Reload(), IsFailedPrecondition("in use has expired"));
  Put(Make(-absl::Hours(1), absl::Hours(9)));
  EXPECT_TRUE(*certificates_->Reload());
}

TEST_F(TlsCertificatesTest, RefusesToStartWithWhatCannotWork) {
  Put(Make(-absl::Hours(2), -absl::Hours(1)));
  EXPECT_THAT(Load(), IsFailedPrecondition("tls.crt: the certificate has expired"));
  Put(Make(absl::Hours(1), absl::Hours(2)));
  EXPECT_THAT(Load(), IsFailedPrecondition("not valid before"));
  Put(MakeTestCertificate(start_ - absl::Hours(1), start_ + absl::Hours(1), "secret"));
  EXPECT_THAT(Load(), IsFailedPrecondition("tls.key: the key has a passphrase"));
  Put({Make().certificate, Make().key});
  EXPECT_THAT(Load(), IsFailedPrecondition("is not the key"));
  Put({Make().certificate + std::string(1, '\0'), Make().key});
  EXPECT_THAT(Load(), IsFailedPrecondition("tls.crt: is not text"));
  Put({Make().certificate, "nonsense"});
  EXPECT_THAT(Load(), IsFailedPrecondition("tls.key: holds no private key"));
  Put({"", Make().key});
  EXPECT_THAT(Load(), IsFailedPrecondition("tls.crt: is empty"));
  Put({std::string((1 << 20) + 1, 'x'), Make().key});
  EXPECT_THAT(Load(), IsInvalidArgument("tls.crt"));
}

TEST_F(TlsCertificatesTest, WarnsOfAKeyThatOthersMayRead) {
  Put(Make());
  ASSERT_EQ(chmod(files_.key.c_str(), 0644), 0);
  ASSERT_THAT(Load(), IsOk());
  EXPECT_THAT(certificates_->Current()->warnings, Contains(HasSubstr("chmod o-r")));
}

TEST_F(TlsCertificatesTest, ClientAuthoritiesAreCheckedAndReloadedToo) {
  files_.client_ca = dir_.File("ca.pem");
  Put(Make());
  dir_.Write("ca.pem", Make(-absl::Hours(2), -absl::Hours(1)).certificate);
  EXPECT_THAT(Load(), IsFailedPrecondition("ca.pem: none of its 1 certificates"));
  dir_.Write("ca.pem", "");
  EXPECT_THAT(Load(), IsFailedPrecondition("ca.pem: is empty"));
  dir_.Write("ca.pem", Make(-absl::Hours(2), -absl::Hours(1)).certificate + Make().certificate);
  ASSERT_THAT(Load(), IsOk());
  EXPECT_THAT(certificates_->Current()->warnings, Contains(HasSubstr("has expired")));
  const std::string fresh = Make().certificate;
  dir_.Write("ca.pem", fresh);
  EXPECT_TRUE(*certificates_->Reload());
  EXPECT_EQ(certificates_->Current()->pem.client_ca, fresh);
  EXPECT_THAT(certificates_->Current()->warnings, Not(Contains(HasSubstr("ca.pem"))));
}

}  // namespace
}  // namespace tlm
