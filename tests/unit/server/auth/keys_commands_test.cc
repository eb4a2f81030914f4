#include "server/auth/keys_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "server/auth/api_key.h"
#include "server/auth/key_file.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kUsage = absl::StatusCode::kInvalidArgument;

class KeysCommandsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Run(const std::string& name, std::vector<std::string> arguments) {
    arguments.push_back("--file=" + path_);
    std::vector<const char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    for (const KeysCommand& command : KeysCommands()) {
      if (command.name != name) continue;
      const absl::StatusOr<KeysArguments> parsed =
          KeysArguments::Parse(pointers, command.flags, command.switches);
      if (!parsed.ok()) return parsed.status();
      std::string output;
      const absl::Status status = command.run(*parsed, clock_, [&](const std::string& text) {
        output += text;
        return printing_;
      });
      return status.ok() ? absl::StatusOr<std::string>(output) : status;
    }
    return absl::UnimplementedError(name);
  }

  std::string Text() const {
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  KeyFile Read() const { return *ParseKeyFile(Text()); }
  // Adds a key; its id.
  std::string Add() {
    return std::string(ParseApiKey((*Run("add", {"--tenant=a"})).substr(0, 81))->id);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("keys.json");
  FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  absl::Status printing_;  // what becomes of output
};

TEST_F(KeysCommandsTest, MistypedFlagsAreGuessed) {
  EXPECT_THAT(Run("add", {"--tenat=a"}),
              StatusIs(kUsage, HasSubstr("no flag '--tenat': did you mean --tenant?")));
}

TEST_F(KeysCommandsTest, AddPrintsTheKeyAndKeepsItsHashAlone) {
  const std::string output =
      Run("add", {"--tenant", "acme", "--role=admin", "--expires=90d"}).value();
  const std::string key = output.substr(0, output.size() - 1);
  EXPECT_EQ(output.back(), '\n');
  ASSERT_TRUE(ParseApiKey(key).has_value());
  const KeyFile file = Read();
  ASSERT_EQ(file.keys.size(), 1u);
  EXPECT_TRUE(Matches(file.keys[0].hash, key));
  EXPECT_EQ(file.keys[0].tenant, "acme");
  EXPECT_EQ(file.keys[0].role, Role::kAdmin);
  EXPECT_EQ(file.keys[0].expires, clock_.Now() + 90 * absl::Hours(24));
  EXPECT_THAT(Text(), Not(HasSubstr(std::string(ParseApiKey(key)->secret))));
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(KeysCommandsTest, ChangesOneKeyAndNoOther) {
  const std::string first = Add();
  const std::string second = Add();
  EXPECT_THAT(Run("disable", {"--id=" + first}), IsOk());
  EXPECT_TRUE(Read().keys[0].disabled);
  EXPECT_FALSE(Read().keys[1].disabled);
  EXPECT_THAT(Run("enable", {"--id=" + first}), IsOk());
  EXPECT_FALSE(Read().keys[0].disabled);
  EXPECT_THAT(Run("remove", {"--id=" + first}), IsOk());
  ASSERT_EQ(Read().keys.size(), 1u);
  EXPECT_EQ(Read().keys[0].id, second);
  EXPECT_THAT(Run("remove", {"--id=" + first}), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(KeysCommandsTest, RotationLeavesTheOldKeyItsGrace) {
  const std::string old = Add();
  const std::string output = Run("rotate", {"--id=" + old, "--grace=2h"}).value();
  const KeyFile file = Read();
  ASSERT_EQ(file.keys.size(), 2u);
  EXPECT_EQ(file.keys[0].expires, clock_.Now() + absl::Hours(2));
  EXPECT_EQ(file.keys[1].tenant, "a");
  EXPECT_EQ(file.keys[1].expires, absl::InfiniteFuture());
  EXPECT_TRUE(Matches(file.keys[1].hash, output.substr(0, output.size() - 1)));
  // A second rotation never makes the old one live longer.
  EXPECT_THAT(Run("rotate", {"--id=" + old, "--grace=9h"}), IsOk());
  EXPECT_EQ(Read().keys[0].expires, clock_.Now() + absl::Hours(2));
}

TEST_F(KeysCommandsTest, LimitsAreSetUnsetAndInherited) {
  EXPECT_THAT(Run("limits", {"--tenant=a", "--requests_per_minute=5", "--tokens_per_minute=none"}),
              IsOk());
  EXPECT_THAT(Run("limits", {"--defaults", "--tokens_per_minute=9"}), IsOk());
  EXPECT_EQ(Read().LimitsOf("a"), (TenantLimits{5, 0, 0, 0}));
  EXPECT_EQ(Read().LimitsOf("b"), (TenantLimits{0, 9, 0, 0}));
  EXPECT_THAT(
      Run("limits", {"--tenant=a", "--requests_per_minute=default", "--tokens_per_minute=default"}),
      IsOk());
  EXPECT_TRUE(Read().tenants.empty());
}

TEST_F(KeysCommandsTest, MaxPriorityIsZeroUnlessGiven) {
  EXPECT_THAT(Run("limits", {"--tenant=a", "--max_priority=7"}), IsOk());
  EXPECT_THAT(Run("limits", {"--tenant=b", "--max_priority=none"}), IsOk());
  EXPECT_EQ(Read().LimitsOf("a").max_priority, 7);
  EXPECT_EQ(Read().LimitsOf("b").max_priority, kMaxPriority);
  EXPECT_EQ(Read().LimitsOf("c").max_priority, 0);
  EXPECT_THAT(*Run("list", {}), HasSubstr("max_priority=7"));
  EXPECT_THAT(*Run("list", {}), HasSubstr("max_priority=none"));
  EXPECT_THAT(Run("limits", {"--defaults", "--max_priority=2"}), IsOk());
  EXPECT_EQ(Read().LimitsOf("c").max_priority, 2);
  EXPECT_THAT(Run("limits", {"--tenant=a", "--max_priority=0"}), IsOk());
  EXPECT_EQ(Read().LimitsOf("a").max_priority, 0);
}

TEST_F(KeysCommandsTest, CertificatesAreReplacedAndRemoved) {
  EXPECT_THAT(Run("certificate", {"--common_name=c", "--tenant=a"}), IsOk());
  EXPECT_THAT(Run("certificate", {"--common_name=c", "--tenant=b", "--role=admin"}), IsOk());
  ASSERT_EQ(Read().certificates.size(), 1u);
  EXPECT_EQ(Read().certificates[0].tenant, "b");
  EXPECT_THAT(Run("certificate", {"--common_name=c", "--remove"}), IsOk());
  EXPECT_TRUE(Read().certificates.empty());
}

TEST_F(KeysCommandsTest, ListShowsNoHash) {
  const std::string id = Add();
  const std::string output = Run("list", {}).value();
  EXPECT_THAT(output, HasSubstr(id));
  EXPECT_THAT(output, Not(HasSubstr(HexText(Read().keys[0].hash.hash))));
  EXPECT_THAT(output, Not(HasSubstr(HexText(Read().keys[0].hash.salt))));
}

TEST_F(KeysCommandsTest, WrongUsageIsToldAndChangesNothing) {
  const std::string id = Add();
  const std::string before = Text();
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
      {"add", {}},
      {"add", {"--tenant="}},
      {"add", {"--tenant=a\nb"}},
      {"add", {"--tenant=a", "--tenant=b"}},
      {"add", {"--tenant=a", "--role=root"}},
      {"add", {"--tenant=a", "--expires=never"}},
      {"add", {"--tenant=a", "--expires=-1h"}},
      {"add", {"--tenant=a", "--expires=2001-01-01T00:00:00Z"}},
      {"add", {"--tenant=a", "stray"}},
      {"disable", {}},
      {"rotate", {"--id=" + id, "--grace=soon"}},
      {"limits", {"--requests_per_minute=1"}},
      {"limits", {"--tenant=a", "--defaults"}},
      {"limits", {"--tenant=a"}},
      {"limits", {"--defaults"}},
      {"limits", {"--tenant=a", "--max_priority=101"}},
      {"limits", {"--tenant=a", "--max_priority=-1"}},
      {"limits", {"--tenant=a", "--requests_per_minute=0"}},
      {"limits", {"--tenant=a", "--requests_per_minute=1x"}},
      {"certificate", {"--tenant=a"}},
      {"certificate", {"--dns=a", "--uri=b", "--tenant=a"}}};
  for (const auto& [command, arguments] : wrong) {
    EXPECT_THAT(Run(command, arguments), StatusIs(kUsage, HasSubstr("--"))) << command;
  }
  EXPECT_EQ(Text(), before);
}

TEST_F(KeysCommandsTest, ABrokenFileIsLeftAlone) {
  dir_.Write("keys.json", "{");
  EXPECT_THAT(Run("add", {"--tenant=a"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("keys.json")));
  EXPECT_EQ(Text(), "{");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
}

TEST_F(KeysCommandsTest, AKeyThatCannotBePrintedIsNotMade) {
  const std::string id = Add();
  const std::string before = Text();
  printing_ = absl::FailedPreconditionError("disk full");
  EXPECT_THAT(Run("add", {"--tenant=a"}), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(Run("rotate", {"--id=" + id}), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_EQ(Text(), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
}

TEST_F(KeysCommandsTest, DraftsOfKilledRunsAreSweptAndNothingElse) {
  for (const char* const kept : {"keys.json.backup", "keys.json.tlm-keys-", "keys.json.tlm-keys-1",
                                 "other.json.tlm-keys-123456"}) {
    dir_.Write(kept, "");
  }
  std::filesystem::create_directory(dir_.File("keys.json.tlm-keys-folder"));
  dir_.Write("keys.json.tlm-keys-aB3xYz", "");
  Add();
  EXPECT_FALSE(std::filesystem::exists(dir_.File("keys.json.tlm-keys-aB3xYz")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 6);
}

TEST_F(KeysCommandsTest, KeepsModeAndLink) {
  std::filesystem::create_directory(dir_.File("real"));
  const std::string real = dir_.Write("real/keys.json", "{\"version\": 1}");
  ASSERT_EQ(chmod(real.c_str(), 0640), 0);
  std::filesystem::create_symlink(real, path_);
  Add();
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  struct stat status;
  ASSERT_EQ(stat(real.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(Read().keys.size(), 1u);
}

TEST_F(KeysCommandsTest, ALinkToNothingIsNotReplaced) {
  std::filesystem::create_symlink(dir_.File("nothing.json"), path_);
  EXPECT_THAT(Run("add", {"--tenant=a"}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr("symbolic link to nothing")));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(KeysCommandsTest, ManyAtOnceLoseNothing) {
  std::vector<std::thread> adders;
  for (int i = 0; i < 4; ++i) {
    adders.emplace_back([this] {
      for (int j = 0; j < 10; ++j) EXPECT_THAT(Run("add", {"--tenant=a"}), IsOk());
    });
  }
  for (std::thread& adder : adders) adder.join();
  EXPECT_EQ(Read().keys.size(), 40u);
}

}  // namespace
}  // namespace tlm
