#include "client/cli/base/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

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
