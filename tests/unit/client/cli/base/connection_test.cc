#include "client/cli/base/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/unit/server/net/test_certificates.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class TlsFilesTest : public testing::Test {
 protected:
  static std::string Write(const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "connection_test." + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static absl::Status CheckPair(const std::string& certificate, const std::string& key) {
    client::ClientOptions options;
    options.client_certificate_file = Write("crt", certificate);
    options.client_key_file = Write("key", key);
    return CheckTlsFiles(options);
  }

  static absl::Status CheckAuthority(const std::string& path) {
    client::ClientOptions options;
    options.ca_file = path;
    return CheckTlsFiles(options);
  }

  static void ExpectRefused(const absl::Status& status, const std::string& file,
                            const std::string& message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("connection_test." + file + ":"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  const absl::Time now_ = absl::Now();
  const TestCertificate good_ = MakeTestCertificate(now_ - absl::Hours(1), now_ + absl::Hours(1));
};

TEST_F(TlsFilesTest, TakesWhatIsSound) {
  EXPECT_TRUE(CheckTlsFiles({}).ok());
  EXPECT_TRUE(CheckPair(good_.certificate, good_.key).ok());
  EXPECT_TRUE(CheckPair(good_.key + good_.certificate, good_.key).ok());
  EXPECT_TRUE(CheckAuthority(Write("ca", "by hand:\n" + good_.certificate)).ok());
}

TEST_F(TlsFilesTest, RefusesWhatIsNotPem) {
  for (const std::string& text : {std::string(), std::string("tlm_id_secret\n"), good_.key,
                                  good_.certificate.substr(0, 100), std::string(64, '\0')}) {
    ExpectRefused(CheckAuthority(Write("ca", text)), "ca", "holds no certificate in PEM");
    ExpectRefused(CheckPair(text, good_.key), "crt", "holds no certificate in PEM");
  }
  ExpectRefused(CheckPair(good_.certificate, good_.certificate), "key", "holds no private key");
}

TEST_F(TlsFilesTest, DoesNotAskForAPassphrase) {
  const TestCertificate locked =
      MakeTestCertificate(now_ - absl::Hours(1), now_ + absl::Hours(1), "hush");
  ExpectRefused(CheckPair(locked.certificate, locked.key), "key", "passphrase");
}

TEST_F(TlsFilesTest, RefusesTheKeyOfAnotherCertificate) {
  const TestCertificate other = MakeTestCertificate(now_ - absl::Hours(1), now_ + absl::Hours(1));
  ExpectRefused(CheckPair(good_.certificate, other.key), "key", "is not the key of");
}

TEST_F(TlsFilesTest, RefusesACertificateThatHasExpired) {
  const TestCertificate old =
      MakeTestCertificate(absl::FromUnixSeconds(0), absl::FromUnixSeconds(1'000'000'000));
  ExpectRefused(CheckPair(old.certificate, old.key), "crt", "expired on 2001-09-09T01:46:40Z");
}

TEST_F(TlsFilesTest, LeavesPipesAndMissingFilesAlone) {
  EXPECT_TRUE(CheckAuthority("/nonexistent/ca").ok());
  const std::string pipe = testing::TempDir() + "connection_test.pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(CheckAuthority(pipe).ok());  // and does not wait for a writer
}

class ApiKeyTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return ReadApiKeyFile(path_, &console_);
  }

  const std::string path_ = testing::TempDir() + "api_key_test.key";
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Console console_{in_, out_, err_};
};

TEST_F(ApiKeyTest, LeavesOutTheLineBreak) {
  for (const char* text :
       {"tlm_id_secret", "tlm_id_secret\n", "tlm_id_secret\r\n\n", " tlm_id_secret "}) {
    const auto key = Read(text);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(*key, "tlm_id_secret");
  }
  EXPECT_EQ(err_.str(), "");
}

TEST_F(ApiKeyTest, RefusesWhatIsNoKeyWithoutShowingIt) {
  for (const std::string& text : {std::string(), std::string(" \n"), std::string("hush hush"),
                                  std::string("hush\nhush\n"), std::string(5000, 'h')}) {
    const auto key = Read(text);
    EXPECT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(key.status().message()), HasSubstr(path_));
    EXPECT_THAT(std::string(key.status().message()), Not(HasSubstr("hush")));
  }
}

TEST_F(ApiKeyTest, WarnsOfAWorldReadableFile) {
  EXPECT_TRUE(Read("hush", 0640).ok());
  EXPECT_EQ(err_.str(), "");
  EXPECT_TRUE(Read("hush", 0644).ok());
  EXPECT_THAT(err_.str(), HasSubstr("mode 0644"));
  EXPECT_THAT(err_.str(), Not(HasSubstr("hush")));
}

TEST_F(ApiKeyTest, NamesWhatCannotBeRead) {
  for (const char* path : {"/nonexistent/key", "/tmp"}) {
    const auto key = ReadApiKeyFile(path, &console_);
    EXPECT_EQ(key.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(key.status().message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace tlm::cli
