#include "client/cli/base/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/generate.h"
#include "tests/support/proto.h"

ABSL_DECLARE_FLAG(std::optional<uint32_t>, top_k);
ABSL_DECLARE_FLAG(std::optional<bool>, logprobs);
ABSL_DECLARE_FLAG(std::string, target);
ABSL_DECLARE_FLAG(bool, ignore_eos);
ABSL_DECLARE_FLAG(tlm::cli::StringList, stop);
ABSL_DECLARE_FLAG(tlm::cli::IdList, banned_token_ids);
ABSL_DECLARE_FLAG(tlm::cli::BiasList, logit_bias);

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CommandLineTest : public testing::Test {
 protected:
  absl::StatusOr<ParsedLine> Parse(const std::vector<std::string>& args) {
    return ParseCommandLine(*FindCommand("generate"), args);
  }
  std::string ErrorOf(const std::vector<std::string>& args) {
    return std::string(Parse(args).status().message());
  }

  absl::FlagSaver saver_;  // puts all flags back after each test
};

TEST_F(CommandLineTest, TakesFlagsInEveryForm) {
  const auto line =
      Parse({"--top_k=3", "a", "--target", "host:1", "--ignore_eos", "--nologprobs", "b"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->arguments, ElementsAre("a", "b"));
  EXPECT_EQ(absl::GetFlag(FLAGS_top_k), 3u);
  EXPECT_EQ(absl::GetFlag(FLAGS_target), "host:1");
  EXPECT_TRUE(absl::GetFlag(FLAGS_ignore_eos));
  EXPECT_EQ(absl::GetFlag(FLAGS_logprobs), false);
}

TEST_F(CommandLineTest, TellsSetZeroFromUnset) {
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_top_k), std::nullopt);
  ASSERT_TRUE(Parse({"--top_k=0"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_top_k), 0u);
}

TEST_F(CommandLineTest, LeavesArgumentsAfterDashesAlone) {
  const auto line = Parse({"--", "--top_k=3", "-"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(line->arguments, ElementsAre("--top_k=3", "-"));
  EXPECT_EQ(absl::GetFlag(FLAGS_top_k), std::nullopt);
  EXPECT_THAT(Parse({"-"})->arguments, ElementsAre("-"));
}

TEST_F(CommandLineTest, AddsUpRepeatedLists) {
  ASSERT_TRUE(Parse({"--stop=a,b", "--stop", "c\\,d", "--banned_token_ids=1,2",
                     "--banned_token_ids=3", "--logit_bias=7:-1.5", "--logit_bias", "8:0.1"})
                  .ok());
  EXPECT_THAT(absl::GetFlag(FLAGS_stop).values, ElementsAre("a", "b", "c,d"));
  EXPECT_THAT(absl::GetFlag(FLAGS_banned_token_ids).ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(absl::GetFlag(FLAGS_logit_bias).biases,
              ElementsAre(testing::Pair(7u, -1.5f), testing::Pair(8u, 0.1f)));
}

TEST_F(CommandLineTest, RefusesWhatIsNoFlag) {
  EXPECT_THAT(ErrorOf({"--bogus=1"}), HasSubstr("no flag --bogus;"));
  EXPECT_THAT(ErrorOf({"-x"}), HasSubstr("no flag -x;"));
  EXPECT_THAT(ErrorOf({"--notop_k"}), HasSubstr("no flag --notop_k: "));
  EXPECT_THAT(ErrorOf({"--wait=1"}), HasSubstr("no flag --wait;"));  // of another command
  EXPECT_THAT(ErrorOf({"--=1"}), HasSubstr("no flag --;"));
}

TEST_F(CommandLineTest, RefusesMissingAndWrongValues) {
  EXPECT_THAT(ErrorOf({"--target"}), HasSubstr("--target needs a value"));
  for (const char* flag : {"--top_k=-1", "--top_k=x", "--top_p=high", "--seed=99999999999999999999",
                           "--ignore_eos=perhaps", "--stop=a,,b", "--prompt_ids=1;2",
                           "--logit_bias=1", "--logit_bias=1:2,1:3"}) {
    const auto line = Parse({flag});
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument) << flag;
    EXPECT_THAT(std::string(line.status().message()), testing::Not(HasSubstr("\n")));
  }
}

TEST_F(CommandLineTest, SuggestsTheNearestFlagOfTheCommand) {
  EXPECT_EQ(ErrorOf({"--temprature=1"}), "no flag --temprature: did you mean --temperature?");
  EXPECT_EQ(ErrorOf({"--max-new-tokens=1"}),
            "no flag --max-new-tokens: did you mean --max_new_tokens?");
}

TEST_F(CommandLineTest, NamesWhatAValueMayBe) {
  EXPECT_EQ(ErrorOf({"--top_k=x"}), "--top_k is 'x', it must be a whole number");
  EXPECT_EQ(ErrorOf({"--top_k=-1"}), "--top_k is '-1', the range is [0, 4294967295]");
  EXPECT_EQ(ErrorOf({"--temperature=hot"}), "--temperature is 'hot', it must be a number");
  EXPECT_EQ(ErrorOf({"--timeout=soon"}),
            "--timeout is 'soon': a time span is a number of seconds, or like 1m30s");
  const std::string endless = ErrorOf({"--prompt_ids=1," + std::string(100'000, 'x')});
  EXPECT_THAT(endless, testing::StartsWith("--prompt_ids is '1,xxx"));
  EXPECT_LE(endless.size(), 300u);
}

TEST_F(CommandLineTest, NoticesWishForHelp) {
  EXPECT_TRUE(Parse({"--help"})->wants_help);
  EXPECT_TRUE(Parse({"x", "-h"})->wants_help);
}

class GenerateRequestTest : public CommandLineTest {
 protected:
  absl::StatusOr<v1::GenerateRequest> Build(const std::vector<std::string>& args) {
    const auto line = Parse(args);
    if (!line.ok()) return line.status();
    std::istringstream in("from stdin");
    return GenerateRequestFromFlags(line->arguments, &in);
  }
};

TEST_F(GenerateRequestTest, SetsTheFieldsOfTheFlagsAlone) {
  EXPECT_THAT(*Build({"p"}), IsProto("prompt: 'p' sampling {} stopping {} output {}"));
  EXPECT_THAT(*Build({"-"}), IsProto("prompt: 'from stdin' sampling {} stopping {} output {}"));
  EXPECT_THAT(
      *Build({"p", "--print_ids"}),
      IsProto("prompt: 'p' sampling {} stopping {} output { text: false token_ids: true }"));
  const auto request =
      Build({"--temperature=0",         "--top_p=0.9",           "--seed=18446744073709551615",
             "--logit_bias=5:-1.5",     "--typical_p=0.8",       "--repetition_penalty=1.1",
             "--presence_penalty=-0.5", "--frequency_penalty=2", "--num_sequences=3",
             "--allowed_token_ids=4",   "--min_new_tokens=2",    "--prompt_logprobs",
             "--banned_token_ids=1,2",  "--max_new_tokens=7",    "--stop=\\n",
             "--stop_token_ids=9",      "--top_logprobs=3",      "--logprobs_mode=processed",
             "--priority=-5",           "--soft_time_limit=1.5", "--cache_salt=s",
             "--speculation=off",       "--max_draft_tokens=4",  "--prompt_ids=1,2,3"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(*request, IsProto(R"(
      prompt_token_ids { ids: [1, 2, 3] } speculation { mode: OFF max_draft_tokens: 4 }
      sampling {
        temperature: 0 top_p: 0.9 seed: 18446744073709551615 typical_p: 0.8
        logit_bias { key: 5 value: -1.5 } repetition_penalty: 1.1 presence_penalty: -0.5
        frequency_penalty: 2 num_sequences: 3 allowed_token_ids: 4 banned_token_ids: [1, 2] }
      stopping { min_new_tokens: 2 max_new_tokens: 7 stop_strings: "\n" stop_token_ids: 9 }
      output {
        text: false token_ids: true prompt_logprobs: true top_logprobs: 3
        logprobs_mode: LOGPROBS_MODE_PROCESSED }
      scheduling { priority: -5 soft_time_limit { seconds: 1 nanos: 500000000 } }
      cache { cache_salt: "s" })"));
}

TEST_F(GenerateRequestTest, WantsExactlyOnePrompt) {
  EXPECT_FALSE(Build({}).ok());
  EXPECT_FALSE(Build({"a", "b"}).ok());
  EXPECT_FALSE(Build({"a", "--prompt_ids=1"}).ok());
}

TEST_F(GenerateRequestTest, RefusesInvalidUtf8AndUnknownMode) {
  EXPECT_EQ(Build({"\xff"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Build({"p", "--logprobs_mode=cooked"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tlm::cli
