#include "model/tokenizer/token_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using Step = TokenDecoderStep;

Step Replace(std::string pattern, std::string content, bool is_literal = true) {
  Step step;
  step.kind = Step::kReplace;
  step.pattern = std::move(pattern);
  step.content = std::move(content);
  step.is_literal = is_literal;
  return step;
}

Step Strip(std::string content, size_t start, size_t stop) {
  Step step;
  step.kind = Step::kStrip;
  step.content = std::move(content);
  step.start = start;
  step.stop = stop;
  return step;
}

Step Metaspace(bool prepends) {
  Step step;
  step.kind = Step::kMetaspace;
  step.content = "▁";
  step.prepends = prepends;
  return step;
}

Step Plain(Step::Kind kind) {
  Step step;
  step.kind = kind;
  return step;
}

TokenDecoder Make(const std::vector<Step>& steps) {
  auto decoder = TokenDecoder::Create(steps);
  EXPECT_THAT(decoder, IsOk());
  return *std::move(decoder);
}

std::string Text(const TokenDecoder& decoder, std::string_view token, bool is_first = false) {
  const auto text = decoder.Decode(token, is_first);
  EXPECT_THAT(text, IsOk());
  return text.ok() ? text->text : "";
}

TEST(TokenDecoderTest, ReadsTheByteLevelAlphabet) {
  const TokenDecoder decoder = Make({Plain(Step::kByteLevel)});
  EXPECT_EQ(Text(decoder, "Ġthe"), " the");
  EXPECT_EQ(Text(decoder, "ä"), "\xe4");
  EXPECT_EQ(Text(decoder, "a b"), "a b") << "not in the alphabet";
  EXPECT_FALSE(decoder.has_byte_tokens());
}

TEST(TokenDecoderTest, DoesWhatLlama2Asks) {
  const TokenDecoder decoder =
      Make({Replace("▁", " "), Plain(Step::kByteFallback), Plain(Step::kFuse), Strip(" ", 1, 0)});
  EXPECT_EQ(Text(decoder, "▁the"), " the");
  EXPECT_EQ(Text(decoder, "▁▁"), "  ");
  EXPECT_EQ(Text(decoder, "<0x0A>"), "\n");
  EXPECT_EQ(Text(decoder, "<0xfF>"), "\xff");
  EXPECT_TRUE(decoder.Decode("<0x41>", false)->is_byte);
  for (const char* const token : {"<0x4>", "<0x4G>", "<0x041>", "<0X41>", "x0x41>", "<0x41<"}) {
    EXPECT_FALSE(decoder.Decode(token, false)->is_byte) << token;
    EXPECT_EQ(Text(decoder, token), token);
  }
  EXPECT_TRUE(decoder.has_byte_tokens());
  EXPECT_FALSE(decoder.first_token_is_special());
  EXPECT_EQ(decoder.stripped(), " ");
  EXPECT_EQ(decoder.max_stripped(), 1u);
}

TEST(TokenDecoderTest, MetaspaceTakesTheMarksOutOfTheFirstToken) {
  const TokenDecoder decoder = Make({Metaspace(true)});
  EXPECT_EQ(Text(decoder, "▁a▁"), " a ");
  EXPECT_EQ(Text(decoder, "▁a▁", true), "a");
  EXPECT_TRUE(decoder.first_token_is_special());
  const TokenDecoder keeps = Make({Metaspace(false)});
  EXPECT_EQ(Text(keeps, "▁a", true), " a");
  EXPECT_FALSE(keeps.first_token_is_special());
}

TEST(TokenDecoderTest, ReplacesAndStripsTokenByToken) {
  EXPECT_EQ(Text(Make({Replace("[0-9]+", "#", false)}), "a12b3"), "a#b#");
  const TokenDecoder strip = Make({Strip("-", 2, 1)});
  EXPECT_EQ(Text(strip, "---a--"), "-a-");
  EXPECT_EQ(Text(strip, "-"), "");
  EXPECT_EQ(Text(strip, "a"), "a");
  EXPECT_EQ(strip.max_stripped(), 0u) << "of tokens, not of the text";
}

TEST(TokenDecoderTest, RefusesStepsThatLookFarAround) {
  const Step fuse = Plain(Step::kFuse);
  const Step bytes = Plain(Step::kByteFallback);
  const std::vector<Step> refused[] = {
      {fuse, Replace("a", "b")}, {fuse, bytes},
      {fuse, Strip(" ", 0, 1)},  {fuse, Strip(" ", 1, 0), Strip(" ", 1, 0)},
      {bytes, Replace("a", "")}, {Plain(Step::kByteLevel), Metaspace(true)},
  };
  for (const std::vector<Step>& steps : refused) {
    EXPECT_THAT(TokenDecoder::Create(steps), IsUnimplemented("is not supported"));
  }
}

TEST(TokenDecoderTest, RefusesTextsThatGrow) {
  const TokenDecoder decoder = Make({Replace("a", std::string(100, 'b'))});
  EXPECT_THAT(decoder.Decode("aa", false), IsResourceExhausted("the limit is 80"));
}

}  // namespace
}  // namespace tlm
