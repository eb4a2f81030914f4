#include "client/cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/base/command_line.h"
#include "client/cli/completion.h"

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

TEST(FlagTextTest, DescribesSwitchesAndDefaults) {
  EXPECT_TRUE(Describe("generate", "ignore_eos").is_switch);
  EXPECT_FALSE(Describe("generate", "ignore_eos").can_be_off);
  EXPECT_TRUE(Describe("generate", "add_special_tokens").can_be_off);
  EXPECT_EQ(Describe("forward", "dtype").default_value, "float32");
  EXPECT_EQ(Describe("generate", "min_new_tokens").default_value, "");
}

TEST(FlagTextTest, ACommandMayExplainAFlagItself) {
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

std::vector<std::string> CandidatesOf(const std::vector<std::string>& words) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : Complete(words).candidates) texts.push_back(candidate.text);
  return texts;
}

TEST(CompletionTest, CompletesCommandsAndTheirFirstArguments) {
  EXPECT_EQ(CandidatesOf({""}).size(), Commands().size());
  EXPECT_THAT(CandidatesOf({"to"}), ElementsAre("tokenize", "top"));
  EXPECT_THAT(CandidatesOf({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(CandidatesOf({"admin", "d"}), ElementsAre("drain"));
  EXPECT_THAT(CandidatesOf({"admin", "drain", ""}), IsEmpty());
  EXPECT_THAT(CandidatesOf({"help", "tok"}), ElementsAre("tokenize"));
  EXPECT_THAT(CandidatesOf({"generate", ""}), IsEmpty());
  EXPECT_THAT(CandidatesOf({"nonsense", ""}), IsEmpty());
  EXPECT_TRUE(Complete({"info", "mod"}).files);
  EXPECT_TRUE(Complete({"serve", "mod"}).files);
}

TEST(CompletionTest, CompletesFlagsOfTheCommand) {
  EXPECT_THAT(CandidatesOf({"generate", "text", "--top_"}),
              ElementsAre("--top_k=", "--top_p=", "--top_logprobs="));
  EXPECT_THAT(CandidatesOf({"generate", "--ignore"}), ElementsAre("--ignore_eos"));
  EXPECT_THAT(CandidatesOf({"tokenize", "--noadd"}), ElementsAre("--noadd_special_tokens"));
  EXPECT_THAT(CandidatesOf({"generate", "--ra"}), IsEmpty());
}

TEST(CompletionTest, CompletesValuesHoweverTheShellDividesTheWord) {
  EXPECT_THAT(CandidatesOf({"forward", "--dtype=b"}), ElementsAre("--dtype=bfloat16"));
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"forward", "--dtype", "b"}, {"forward", "--dtype", "=", "b"}}) {
    EXPECT_THAT(CandidatesOf(words), ElementsAre("bfloat16"));
  }
  EXPECT_EQ(CandidatesOf({"forward", "--dtype", "="}).size(), 3u);
  EXPECT_TRUE(Complete({"health", "--ca_file=/etc/c"}).files);
  EXPECT_TRUE(Complete({"chat", "--tools", "t"}).files);
  EXPECT_TRUE(Complete({"health", "--ca_file", "/etc/c"}).files);
  EXPECT_FALSE(Complete({"generate", "--seed="}).files);
}

TEST(ManPageTest, NamesEveryFlag) {
  const std::string man = ProgramManPage();
  for (const Command& command : Commands()) {
    for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
      EXPECT_THAT(man, HasSubstr("\\fB\\-\\-" + flag.name + "\\fR"));
      EXPECT_THAT(CommandManPage(command), HasSubstr("\\fB\\-\\-" + flag.name + "\\fR"));
    }
  }
}

}  // namespace
}  // namespace tlm::cli
