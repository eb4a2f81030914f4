// What help, manual pages and completions say, all of it from the commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/base/command_line.h"
#include "client/cli/completion_scripts.h"
#include "client/cli/man_pages.h"

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

FlagText Describe(std::string_view command, std::string_view flag) {
  const std::vector<std::string_view> names = {flag};
  return DescribeFlags(*FindCommand(command), names).at(0);
}

TEST(FlagTextTest, TellsSwitchesListsAndDefaults) {
  EXPECT_TRUE(Describe("generate", "ignore_eos").is_switch);
  EXPECT_FALSE(Describe("generate", "ignore_eos").can_be_off);
  EXPECT_TRUE(Describe("generate", "add_special_tokens").can_be_off);
  EXPECT_TRUE(Describe("generate", "stop").is_list);
  EXPECT_FALSE(Describe("generate", "seed").is_list);
  EXPECT_EQ(Describe("forward", "dtype").default_value, "float32");
  EXPECT_EQ(Describe("generate", "min_new_tokens").default_value, "");
}

TEST(FlagTextTest, LetsACommandSayWhatAFlagMeansToIt) {
  EXPECT_NE(Describe("bench", "prompt_tokens").help, Describe("info", "prompt_tokens").help);
}

TEST(FlagTextTest, EveryFlagOfEveryCommandExistsAndIsExplained) {
  for (const Command& command : Commands()) {
    const std::vector<std::string_view> names = FlagsOf(command);
    EXPECT_EQ(DescribeFlags(command, names).size(), names.size()) << command.name;
    for (const FlagText& flag : DescribeFlags(command, names)) {
      EXPECT_THAT(flag.help, Not(IsEmpty())) << flag.name;
    }
    for (const auto& [name, help] : command.flag_help) {
      EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    }
  }
}

TEST(FlagTextTest, KnowsTheFirstArguments) {
  EXPECT_THAT(FirstArguments(*FindCommand("completion")), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(FirstArguments(*FindCommand("admin")),
              ElementsAre("load", "abort", "drain", "flush", "config"));
  EXPECT_EQ(FirstArguments(*FindCommand("help")).size(), Commands().size());
  EXPECT_THAT(FirstArguments(*FindCommand("generate")), IsEmpty());
}

TEST(FlagTextTest, ManualAndCompletionsNameEveryFlag) {
  const std::string bash = BashCompletion();
  const std::string zsh = ZshCompletion();
  const std::string fish = FishCompletion();
  const std::string man = ProgramManPage();
  for (const Command& command : Commands()) {
    for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
      EXPECT_THAT(bash, HasSubstr("--" + flag.name));
      EXPECT_THAT(zsh, HasSubstr("--" + flag.name));
      EXPECT_THAT(fish, HasSubstr("-l " + flag.name + " "));
      EXPECT_THAT(man, HasSubstr("\\fB\\-\\-" + flag.name + "\\fR"));
      EXPECT_THAT(CommandManPage(command), HasSubstr("\\fB\\-\\-" + flag.name + "\\fR"));
    }
  }
}

}  // namespace
}  // namespace tlm::cli
