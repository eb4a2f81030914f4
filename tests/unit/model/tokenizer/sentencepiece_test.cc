// Tokenizers over vocabularies of SentencePiece: BPE as Llama 2 and Mistral have it, Unigram as T5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/cpu_seconds.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/tokenizer/every_split.h"
#include "tests/unit/model/tokenizer/llama2c.h"
#include "tests/unit/model/tokenizer/small_sentencepiece.h"

namespace tlm {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kPieces = {" ", "a", "b", "c", "d", " a", "bc", " abc", "  ", "é"};

// Tokens as the file names them.
std::vector<std::string> Tokens(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_THAT(ids, IsOk());
  std::vector<std::string> tokens;
  for (const int32_t id : ids.value_or(std::vector<int32_t>{})) {
    tokens.push_back(tokenizer.IdToToken(id));
  }
  return tokens;
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(tokenizer.TokenToId(token).value_or(-1));
  return ids;
}

TEST(SentencePieceTest, EncodesWordsWithTheirSpaces) {
  for (const json& document :
       {LlamaJson(WithBytes(kPieces)), MistralJson(WithBytes(kPieces), "always"),
        MistralJson(WithBytes(kPieces), "first")}) {
    const auto tokenizer = MakeTokenizer(document);
    EXPECT_THAT(Tokens(*tokenizer, "abc d"), ElementsAre("▁abc", "▁", "d"));
    EXPECT_THAT(Tokens(*tokenizer, "a", {true, true}), ElementsAre("<s>", "▁a"));
    EXPECT_THAT(Tokens(*tokenizer, ""), IsEmpty());
    EXPECT_THAT(Tokens(*tokenizer, "a\nü"), ElementsAre("▁a", "<0x0A>", "<0xC3>", "<0xBC>"));
    EXPECT_THAT(Tokens(*tokenizer, "é"), ElementsAre("▁", "é"));
  }
}

// The older layout puts a space before text that begins with one, the newer does not.
TEST(SentencePieceTest, LayoutsDifferInLeadingSpaces) {
  EXPECT_THAT(Tokens(*MakeTokenizer(LlamaJson(WithBytes(kPieces))), " a"), ElementsAre("▁", "▁a"));
  EXPECT_THAT(Tokens(*MakeTokenizer(MistralJson(WithBytes(kPieces), "always")), " a"),
              ElementsAre("▁a"));
}

TEST(SentencePieceTest, TextBehindAnAddedTokenMayBeginWithASpaceToo) {
  const auto tokens = [](const json& document) {
    return Tokens(*MakeTokenizer(document), "a</s>a");
  };
  EXPECT_THAT(tokens(LlamaJson(WithBytes(kPieces))), ElementsAre("▁a", "</s>", "▁a"));
  EXPECT_THAT(tokens(MistralJson(WithBytes(kPieces), "always")), ElementsAre("▁a", "</s>", "▁a"));
  EXPECT_THAT(tokens(MistralJson(WithBytes(kPieces), "first")), ElementsAre("▁a", "</s>", "a"));
}

// A token that is normalized is looked for as the normalizer writes it, thus with the space that it
// puts in front.
TEST(SentencePieceTest, NormalizedTokensAreFoundAtTheBeginningOfASegment) {
  json document = LlamaJson(WithBytes(kPieces));
  document["added_tokens"].push_back(AddedTokenJson(300, "<x>", false));
  document["added_tokens"].back()["normalized"] = true;
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Tokens(*tokenizer, "<x>a"), ElementsAre("<x>", "a"));
  EXPECT_THAT(Tokens(*tokenizer, "a <x>"), ElementsAre("▁a", "<x>"));
  EXPECT_THAT(Tokens(*tokenizer, "a<x>"), ElementsAre("▁a", "<0x3C>", "<0x78>", "<0x3E>"));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"▁a", "<x>"})), "a <x>");
}

TEST(SentencePieceTest, SpecialTokensInTextMayBeText) {
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  EXPECT_THAT(Tokens(*tokenizer, "a<s>"), ElementsAre("▁a", "<s>"));
  EXPECT_THAT(Tokens(*tokenizer, "a<s>", {false, false}),
              ElementsAre("▁a", "<0x3C>", "<0x73>", "<0x3E>"));
}

TEST(SentencePieceTest, DecodesAndDropsTheFirstSpaceOnly) {
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"<s>", "▁abc", "▁", "▁a"})), "abc  a");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"▁▁", "a"})), " a");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"<s>", "▁a"}), false), "<s> a");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"a", "<0xC3>", "<0xBC>", "<0x0A>"})), "aü\n");
}

TEST(SentencePieceTest, BytesThatAreNoCharacterAreReplacedOneByOne) {
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"<0xE4>", "<0xB8>", "a"})), "\uFFFD\uFFFDa");
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"<0xE4>", "a", "<0xB8>", "<0xAD>"})),
            "\uFFFDa\uFFFD\uFFFD")
      << "bytes join their neighbours only";
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"<0x41>", "<0xF0>", "<0x9F>"})), "A\uFFFD\uFFFD");
}

TEST(SentencePieceTest, TokenBytesAreThoseWithinAText) {
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  const auto bytes = [&](std::string_view token) {
    return tokenizer->TokenBytes(*tokenizer->TokenToId(token));
  };
  EXPECT_EQ(bytes("▁abc"), " abc");
  EXPECT_EQ(bytes("<0x0A>"), "\n");
  EXPECT_EQ(bytes("<0xE4>"), "\xe4");
  EXPECT_EQ(bytes("<s>"), "<s>");
  EXPECT_TRUE(tokenizer->IsByte(*tokenizer->TokenToId("<0xE4>")));
  EXPECT_FALSE(tokenizer->IsByte(*tokenizer->TokenToId("é")));
  EXPECT_FALSE(tokenizer->IsByte(-1));
  EXPECT_EQ(tokenizer->vocab_size(), 269);
  EXPECT_EQ(tokenizer->IdToToken(268), "é");
  EXPECT_EQ(tokenizer->IdToToken(269), "");
}

TEST(SentencePieceTest, GeneratedTextKeepsItsFirstSpace) {
  for (const json& document :
       {LlamaJson(WithBytes(kPieces)), UnigramJson({{"<unk>", 0}, {" a", -1}})}) {
    const auto tokenizer = MakeTokenizer(document);
    const std::vector<int32_t> ids = Ids(*tokenizer, {"▁a"});
    const auto text = [&](TextPosition position) {
      return StreamDecoder(tokenizer.get(), true, position).AppendAll(ids);
    };
    EXPECT_EQ(text(TextPosition::kContinuesText), " a");
    EXPECT_EQ(text(TextPosition::kBeginsText), "a");
    EXPECT_EQ(StreamDecoder(tokenizer.get()).AppendAll(ids), " a");
    EXPECT_EQ(PositionAfter(*tokenizer, ids), TextPosition::kContinuesText);
  }
}

TEST(SentencePieceTest, ATextBeginsBehindSpecialTokens) {
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  EXPECT_EQ(PositionAfter(*tokenizer, {}), TextPosition::kBeginsText);
  EXPECT_EQ(PositionAfter(*tokenizer, std::vector<int32_t>{1, 9999, -1}),
            TextPosition::kBeginsText);
}

std::vector<std::string> EveryLayout() {
  ScoredPieces unigram = WithBytes(kPieces);
  json with_bytes = UnigramJson(unigram);
  with_bytes["model"]["byte_fallback"] = true;
  json fallback = with_bytes;
  fallback["decoder"] = LlamaJson(unigram)["decoder"];
  return {LlamaJson(unigram).dump(), MistralJson(unigram, "first").dump(), with_bytes.dump(),
          fallback.dump()};
}

TEST(SentencePieceTest, EverySplitOfAStreamGivesTheTextOfDecode) {
  constexpr size_t kCount = 8;
  std::mt19937 random(5);
  for (const std::string& layout : EveryLayout()) {
    const auto tokenizer = MakeTokenizer(json::parse(layout));
    const std::vector<int32_t> interesting =
        Ids(*tokenizer, {"▁", "▁▁", "▁a", "<0x20>", "<0x41>", "<0xE4>", "<0xB8>", "<0xAD>",
                         "<0xF0>", "<0x9F>", "é", "<s>", "<none>"});
    for (int round = 0; round < 60; ++round) {
      std::vector<int32_t> ids;
      while (ids.size() < kCount) ids.push_back(interesting[random() % interesting.size()]);
      ExpectEverySplitGivesTheText(*tokenizer, ids, round % 2 == 0, TextPosition::kBeginsText);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SentencePieceTest, RandomTextComesBackWhole) {
  std::mt19937 random(17);
  const char* const parts[] = {"a", "b", "c", " ", "  ", "\n", "é", "中", "\U0001F600", "abc", "ü"};
  // The newer layouts do not tell " a" from "a".
  const auto tokenizer = MakeTokenizer(LlamaJson(WithBytes(kPieces)));
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += parts[random() % std::size(parts)];
    const auto ids = tokenizer->Encode(text, true);
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(tokenizer->Decode(*ids), text);
  }
}

TEST(SentencePieceTest, EncodesWithUnigram) {
  const auto tokenizer = MakeTokenizer(
      UnigramJson({{"<unk>", 0}, {" ", -4}, {" ab", -2}, {"a", -3}, {"b", -3}, {"c", -3}}));
  EXPECT_THAT(Tokens(*tokenizer, "ab abc"), ElementsAre("▁ab", "▁ab", "c"));
  EXPECT_THAT(Tokens(*tokenizer, "xya"), ElementsAre("▁", "<unk>", "a"));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"▁ab", "▁ab", "c"})), "ab abc");
}

TEST(SentencePieceTest, LaysOtherNormalizersInFront) {
  json document = UnigramJson({{"<unk>", 0}, {" a", -1}, {"b", -1}});
  document["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFKC"}},
        {{"type", "Lowercase"}},
        {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}}}};
  EXPECT_THAT(Tokens(*MakeTokenizer(document), "Ａ   ⒝B"),
              ElementsAre("▁a", "<unk>", "b", "<unk>", "b"));
}

// The layout of Gemma: the normalizer leaves no space for the pre-tokenizer to split at.
TEST(SentencePieceTest, EncodesInTheLayoutOfGemma) {
  json document = LlamaJson(WithBytes(kPieces));
  document["normalizer"] = document["normalizer"]["normalizers"][1];
  document["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"String", " "}}},
                               {"behavior", "MergedWithPrevious"},
                               {"invert", false}};
  document["decoder"]["decoders"].erase(3);
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Tokens(*tokenizer, "a abc"), ElementsAre("a", "▁abc"));
  EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, {"▁a"})), " a");
}

TEST(SentencePieceTest, RefusesInconsistentFiles) {
  const json llama = LlamaJson(WithBytes(kPieces));
  const json unigram = UnigramJson({{"<unk>", 0}, {"a", -1}, {"b", -1}});
  struct Case {
    json document;
    const char* pointer;
    json value;
    const char* message;
  };
  const Case cases[] = {
      {llama, "/model/unk_token", "<none>", "model.unk_token '<none>' is not in model.vocab"},
      {llama, "/model/merges/0", {"▁", "none"}, "'none' is not in the vocabulary"},
      {llama, "/model/vocab/a", 5, "id 5 is given to"},
      {llama, "/normalizer/normalizers/0/prepend", std::string(300, 'x'), "300 bytes"},
      {unigram, "/model/unk_id", 7, "model.unk_id is 7"},
      {unigram, "/model/vocab/2/0", "a", "stand for the same bytes"},
      {unigram, "/model/vocab/1/0", "", "must have 1 to 1024"},
      {unigram, "/model/vocab", json::array(), "model.vocab is empty"},
      {unigram,
       "/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
       "precompiled_charsmap: has 3 bytes"},
  };
  for (Case broken : cases) {
    broken.document[json::json_pointer(broken.pointer)] = broken.value;
    EXPECT_THAT(Tokenizer::FromJson(broken.document.dump()), IsInvalidArgument(broken.message));
  }
  json byte_level = unigram;
  byte_level["pre_tokenizer"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(Tokenizer::FromJson(byte_level.dump()), IsUnimplemented("'Unigram' behind"));
}

TEST(SentencePieceTest, EncodesAsLlama2cDoes) {
  const auto folder = OraclePath("stories260K");
  if (!folder.has_value()) GTEST_SKIP() << "the oracle directory is not beside the checkout";
  ExpectIdsOfLlama2c(*MakeTokenizer(LlamaJson(PiecesOfLlama2c(*folder))), *folder);
}

// All of a text is one word here. A quadratic step would take 64 times as long for 8 times the
// text.
TEST(SentencePieceTest, AMebibyteTakesNearlyLinearTime) {
  std::vector<std::string> pieces = kPieces;
  pieces.insert(pieces.end(), {"aa", "aaaa", "bcbc", "    "});
  for (const json& document : {LlamaJson(WithBytes(pieces)), UnigramJson(WithBytes(pieces))}) {
    const auto tokenizer = MakeTokenizer(document);
    const auto seconds_for = [&](std::string_view unit, size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += unit;
      return LeastCpuSeconds([&] { EXPECT_THAT(tokenizer->Encode(text, false), IsOk()); });
    };
    constexpr size_t kMebibyte = 1 << 20;
    for (const char* const unit : {"a", " ", "bc", "中", "\U0001F600", "<s>", "▁"}) {
      EXPECT_LT(seconds_for(unit, kMebibyte), 32 * seconds_for(unit, kMebibyte / 8) + 1e-2) << unit;
    }
  }
}

}  // namespace
}  // namespace tlm
