#include "model/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/unit/model/tokenizer/every_split.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

// Bytes, parts of characters and whole ones; "<end>" is special, "<tool>" only added.
std::unique_ptr<Tokenizer> MixedTokenizer() {
  nlohmann::json json = SmallTokenizerJson({{"\xf0", "\x9f"},
                                            {"\xf0\x9f", "\x98"},
                                            {"\x98", "\x80"},
                                            {"\xe4", "\xb8"},
                                            {"\xad", "a"},
                                            {"h", "i"}});
  json["added_tokens"] = {AddedTokenJson(300, "<end>", true), AddedTokenJson(301, "<tool>", false)};
  return MakeTokenizer(json);
}

std::vector<int32_t> RandomIds(const Tokenizer& tokenizer, size_t count, std::mt19937* random) {
  // Rather often those that begin, continue and break characters, or are no tokens at all.
  const std::vector<int32_t> interesting = {0xf0, 0x9f, 0x98, 0x80, 0xe4, 0xb8, 0xad,
                                            0xc3, 0xff, 256,  257,  258,  259,  260,
                                            261,  300,  301,  280,  -1,   999};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back((*random)() % 4 == 0 ? static_cast<int32_t>((*random)() % tokenizer.vocab_size())
                                       : interesting[(*random)() % interesting.size()]);
  }
  return ids;
}

TEST(StreamDecoderTest, HoldsBackIncompleteCharacters) {
  const auto tokenizer = MixedTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Append(257), "") << "F0 9F 98";
  EXPECT_EQ(decoder.Append(0x80), "\U0001F600");
  EXPECT_EQ(decoder.Append(259), "") << "E4 B8";
  EXPECT_EQ(decoder.Append(260), "中a") << "AD 61";
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoderTest, TellsWhetherBytesAreHeldBack) {
  const auto tokenizer = MixedTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_FALSE(decoder.holds());
  decoder.Append(257);
  EXPECT_TRUE(decoder.holds()) << "F0 9F 98";
  decoder.Append(300);
  EXPECT_TRUE(decoder.holds()) << "behind a special token too";
  decoder.Append(0x80);
  EXPECT_FALSE(decoder.holds());
  decoder.Append(0xe4);
  decoder.Flush();
  EXPECT_FALSE(decoder.holds());
}

TEST(StreamDecoderTest, ReplacesWhatCannotBecomeACharacter) {
  const auto tokenizer = MixedTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Append(0xff), "\uFFFD");
  EXPECT_EQ(decoder.Append(0xe4), "");
  EXPECT_EQ(decoder.Append('x'), "\uFFFDx");
  EXPECT_EQ(decoder.Append(256), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Append('y'), "y") << "as new after Flush";
}

TEST(StreamDecoderTest, LeavesOutSpecialTokensWhenAsked) {
  const auto tokenizer = MixedTokenizer();
  const std::vector<int32_t> ids = {261, 300, 301, 999};
  EXPECT_EQ(StreamDecoder(tokenizer.get(), true).AppendAll(ids), "hi<tool>");
  EXPECT_EQ(StreamDecoder(tokenizer.get(), false).AppendAll(ids), "hi<end><tool>");
}

// A special token that is left out does not separate the halves of a character.
TEST(StreamDecoderTest, JoinsCharactersAcrossTokensLeftOut) {
  const auto tokenizer = MixedTokenizer();
  const std::vector<int32_t> ids = {257, 300, 999, 0x80};
  EXPECT_EQ(tokenizer->Decode(ids, true), "\U0001F600");
  EXPECT_EQ(tokenizer->Decode(ids, false), "\uFFFD<end>\uFFFD");
}

TEST(StreamDecoderTest, EverySplitGivesTheTextOfDecode) {
  const auto tokenizer = MixedTokenizer();
  std::mt19937 random(5);
  constexpr size_t kCount = 9;
  for (int round = 0; round < 40; ++round) {
    const std::vector<int32_t> ids = RandomIds(*tokenizer, kCount, &random);
    ExpectEverySplitGivesTheText(*tokenizer, ids, round % 2 == 0, TextPosition::kBeginsText);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tlm
