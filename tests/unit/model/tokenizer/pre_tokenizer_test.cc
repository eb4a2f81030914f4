#include "model/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Steps = std::vector<PreTokenizerStep>;

PreTokenizerStep SplitAt(std::string_view pattern,
                         PreTokenizerStep::Behavior behavior = PreTokenizerStep::kIsolated,
                         bool invert = false) {
  PreTokenizerStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PreTokenizerStep PrefixSpace() {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kPrefixSpace;
  return step;
}

PreTokenizerStep Metaspace(PreTokenizerStep::Prepend prepend, bool cuts = true) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kMetaspace;
  step.metaspace = "▁";
  step.prepend = prepend;
  step.cuts = cuts;
  return step;
}

std::vector<std::string> Split(const Steps& steps, std::string_view text,
                               bool begins_input = true) {
  std::vector<std::string> words;
  const auto pre_tokenizer = PreTokenizer::Create(steps);
  EXPECT_THAT(pre_tokenizer, IsOk());
  if (!pre_tokenizer.ok()) return words;
  EXPECT_THAT(pre_tokenizer->Split(text, begins_input,
                                   [&](std::string_view word) {
                                     words.emplace_back(word);
                                     return absl::OkStatus();
                                   }),
              IsOk());
  return words;
}

TEST(PreTokenizerTest, DividesAsGpt2Does) {
  const Steps gpt2 = {SplitAt(kGpt2Pattern)};
  EXPECT_THAT(Split(gpt2, "Hello world  it's 12ab !!\n"),
              ElementsAre("Hello", " world", " ", " it", "'s", " 12", "ab", " !!", "\n"));
  EXPECT_THAT(Split(gpt2, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(Split(gpt2, "'S"), ElementsAre("'", "S"));
  EXPECT_THAT(Split(gpt2, "e\u0301\u180E"), ElementsAre("e", "\u0301\u180E"));
  EXPECT_THAT(Split(gpt2, ""), IsEmpty());
}

TEST(PreTokenizerTest, PutsASpaceBeforePiecesWithoutOne) {
  const Steps steps = {PrefixSpace(), SplitAt(kGpt2Pattern)};
  EXPECT_THAT(Split(steps, "ab c"), ElementsAre(" ab", " c"));
  EXPECT_THAT(Split(steps, " ab"), ElementsAre(" ab"));
  EXPECT_THAT(Split(steps, "\nab"), ElementsAre(" ", "\n", "ab"));
  EXPECT_THAT(Split(steps, ""), IsEmpty());
  // Behind a split it applies to each piece.
  EXPECT_THAT(Split({SplitAt(","), PrefixSpace()}, "a,b"), ElementsAre(" a", " ,", " b"));
}

TEST(PreTokenizerTest, KeepsOrRemovesMatches) {
  EXPECT_THAT(Split({SplitAt(R"(\d)")}, "a1b22"), ElementsAre("a", "1", "b", "2", "2"));
  EXPECT_THAT(Split({SplitAt(R"(\d)", PreTokenizerStep::kRemoved)}, "a1b22c"),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(Split({SplitAt(R"(\d)", PreTokenizerStep::kRemoved, true)}, "a1b22c"),
              ElementsAre("1", "2", "2"));
}

// As Hugging Face's tokenizers 0.23 does it.
TEST(PreTokenizerTest, JoinsMatchesToTheirNeighbours) {
  const auto split = [](PreTokenizerStep::Behavior behavior, bool invert = false) {
    return Split({SplitAt("-", behavior, invert)}, "-a--b-");
  };
  EXPECT_THAT(split(PreTokenizerStep::kContiguous), ElementsAre("-", "a", "--", "b", "-"));
  EXPECT_THAT(split(PreTokenizerStep::kMergedWithPrevious), ElementsAre("-", "a-", "-", "b-"));
  EXPECT_THAT(split(PreTokenizerStep::kMergedWithNext), ElementsAre("-a", "-", "-b", "-"));
  EXPECT_THAT(split(PreTokenizerStep::kMergedWithPrevious, true),
              ElementsAre("-a", "-", "-b", "-"));
  EXPECT_THAT(split(PreTokenizerStep::kMergedWithNext, true), ElementsAre("-", "a-", "-", "b-"));
  EXPECT_THAT(split(PreTokenizerStep::kContiguous, true), ElementsAre("-", "a", "--", "b", "-"));
}

TEST(PreTokenizerTest, MetaspaceMarksWords) {
  const auto always = Metaspace(PreTokenizerStep::kAlways);
  EXPECT_THAT(Split({always}, "a  b "), ElementsAre("▁a", "▁", "▁b", "▁"));
  EXPECT_THAT(Split({always}, " a▁b\tc"), ElementsAre("▁a", "▁b\tc"));
  EXPECT_THAT(Split({Metaspace(PreTokenizerStep::kAlways, false)}, "a b"), ElementsAre("▁a▁b"));
  EXPECT_THAT(Split({Metaspace(PreTokenizerStep::kNever)}, "a b"), ElementsAre("a", "▁b"));
  EXPECT_THAT(Split({always}, ""), IsEmpty());
}

TEST(PreTokenizerTest, MetaspaceMayMarkTheBeginningOfTheInputAlone) {
  const auto first = Metaspace(PreTokenizerStep::kFirst);
  EXPECT_THAT(Split({first}, "a b"), ElementsAre("▁a", "▁b"));
  EXPECT_THAT(Split({first}, "a b", false), ElementsAre("a", "▁b"));
  EXPECT_THAT(Split({SplitAt(","), first}, "a,b"), ElementsAre("▁a", ",", "b"));
  EXPECT_THAT(Split({SplitAt(",", PreTokenizerStep::kRemoved), first}, ",b"), ElementsAre("b"));
}

TEST(PreTokenizerTest, EmptyMatchesCutBetweenCharacters) {
  EXPECT_THAT(Split({SplitAt("x*")}, "axxé中"), ElementsAre("a", "xx", "é", "中"));
  EXPECT_THAT(Split({SplitAt("(?=[A-Z])")}, "oneTwo"), ElementsAre("one", "Two"));
  EXPECT_THAT(Split({SplitAt("$")}, "a\nb"), ElementsAre("a", "\nb"));
}

TEST(PreTokenizerTest, StepsApplyToThePiecesOfTheOnesBefore) {
  PreTokenizerStep literal = SplitAt("b.");
  literal.is_literal = true;
  EXPECT_THAT(Split({literal, SplitAt(R"(\w)")}, "ab.bc"), ElementsAre("a", "b", ".", "b", "c"));
}

TEST(PreTokenizerTest, StopsAtTheFirstErrorOfTheSink) {
  const auto pre_tokenizer = PreTokenizer::Create({SplitAt(" ")});
  ASSERT_THAT(pre_tokenizer, IsOk());
  int calls = 0;
  EXPECT_THAT(pre_tokenizer->Split("a b c", true,
                                   [&](std::string_view) {
                                     return ++calls == 2 ? NotFound("here") : absl::OkStatus();
                                   }),
              StatusIs(absl::StatusCode::kNotFound, "here"));
  EXPECT_EQ(calls, 2);
}

TEST(PreTokenizerTest, PassesOnWhatTheRegexRefuses) {
  EXPECT_THAT(PreTokenizer::Create({SplitAt("(")}), IsInvalidArgument("offset 1"));
  const auto pre_tokenizer = PreTokenizer::Create({SplitAt("(?:a+)+b")});
  ASSERT_THAT(pre_tokenizer, IsOk());
  EXPECT_THAT(pre_tokenizer->Split(std::string(64, 'a') + "cb", true,
                                   [](std::string_view) { return absl::OkStatus(); }),
              IsResourceExhausted("limit"));
}

}  // namespace
}  // namespace tlm
