#include "model/tokenizer/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  const auto normalizer = Normalizer::Create(steps);
  EXPECT_THAT(normalizer, IsOk());
  if (!normalizer.ok()) return "";
  std::string storage;
  const auto result = normalizer->Normalize(text, &storage);
  EXPECT_THAT(result, IsOk());
  return result.ok() ? std::string(*result) : "";
}

TEST(NormalizerTest, AppliesItsStepsInOrder) {
  EXPECT_EQ(Normalize({}, "e\u0301"), "e\u0301");
  EXPECT_EQ(Normalize({NormalForm::kNfc}, "e\u0301"), "é");
  EXPECT_EQ(Normalize({NormalForm::kNfd, StripAccentsStep{}, LowercaseStep{}}, "ÉCOLE"), "ecole");
  EXPECT_EQ(Normalize({LowercaseStep{}, ReplaceStep{"É", true, "x"}}, "É"), "é");
}

TEST(NormalizerTest, DoesWhatLlama2Asks) {
  const std::vector<NormalizerStep> steps = {PrependStep{"▁"}, ReplaceStep{" ", true, "▁"}};
  EXPECT_EQ(Normalize(steps, "a  b "), "▁a▁▁b▁");
  EXPECT_EQ(Normalize(steps, " "), "▁▁");
  EXPECT_EQ(Normalize(steps, ""), "");
}

TEST(NormalizerTest, ReplacesMatches) {
  EXPECT_EQ(Normalize({ReplaceStep{"aa", true, "b"}}, "aaaaa"), "bba");
  EXPECT_EQ(Normalize({ReplaceStep{".", true, ""}}, "a.b."), "ab");
  EXPECT_EQ(Normalize({ReplaceStep{" {2,}", false, "▁"}}, "a  b   c d"), "a▁b▁c d");
  // Empty matches too, but none directly behind another match: as Oniguruma's iterator has it.
  EXPECT_EQ(Normalize({ReplaceStep{"x*", false, "-"}}, "axxb"), "-a-b-");
}

TEST(NormalizerTest, StripsWhiteSpaceOfEitherSide) {
  EXPECT_EQ(Normalize({StripStep{}}, " \n\u3000a b\u00A0"), "a b");
  EXPECT_EQ(Normalize({StripStep{true, false}}, " a "), "a ");
  EXPECT_EQ(Normalize({StripStep{false, true}}, " a "), " a");
  EXPECT_EQ(Normalize({StripStep{}}, " \t"), "");
}

TEST(NormalizerTest, LowersCharacterByCharacter) {
  EXPECT_EQ(Normalize({LowercaseStep{}}, "ÀΣİß"), "àσi\u0307ß");
}

TEST(NormalizerTest, CleansAsNmtDoes) {
  EXPECT_EQ(Normalize({NmtStep{}}, "a\x01\tb\u200B▁\u007F\uFFFDc"), "a b   c");
}

TEST(NormalizerTest, RefusesWhatIsMalformedOrTooLong) {
  EXPECT_THAT(Normalizer::Create({ReplaceStep{"(", false, ""}}), IsInvalidArgument("offset 1"));
  EXPECT_THAT(Normalizer::Create({PrependStep{std::string(257, 'x')}}),
              IsInvalidArgument("257 bytes", "limit is 256"));
  EXPECT_THAT(Normalizer::Create({ReplaceStep{" ", true, std::string(1000, 'x')}}),
              IsInvalidArgument("1000 bytes"));
  EXPECT_THAT(Normalizer::Create({PrecompiledStep{"?"}}),
              IsInvalidArgument("precompiled_charsmap: is not base64"));
}

// Each step may multiply what the one before it left.
TEST(NormalizerTest, StopsTextThatGrowsWithoutBound) {
  for (const bool is_literal : {true, false}) {
    const ReplaceStep grow{"x", is_literal, std::string(256, 'x')};
    const auto normalizer = Normalizer::Create({grow, grow, grow, grow});
    ASSERT_THAT(normalizer, IsOk());
    std::string storage;
    EXPECT_THAT(normalizer->Normalize(std::string(100'000, 'x'), &storage),
                IsResourceExhausted("3201024 bytes"));
  }
}

}  // namespace
}  // namespace tlm
