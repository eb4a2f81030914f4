#include "model/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/cpu_seconds.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Ids of merges i are 256 + i.
const PlainMerges kMerges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "hello"}};
constexpr char kQwenPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            bool add_special_tokens = false) {
  const auto ids = tokenizer.Encode(text, add_special_tokens);
  EXPECT_THAT(ids, IsOk());
  return ids.value_or(std::vector<int32_t>{});
}

json FrameJson(int id) {
  return {{"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {id}}}}}}};
}

// With Qwen's pattern instead of GPT-2's, and NFC.
json QwenLikeJson(const PlainMerges& merges) {
  json document = SmallTokenizerJson(merges);
  document["normalizer"] = {{"type", "NFC"}};
  document["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", kQwenPattern}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return document;
}

TEST(TokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = MakeTokenizer(SmallTokenizerJson(kMerges));
  EXPECT_THAT(Encode(*tokenizer, "hello hello!"), ElementsAre(259, 260, '!'));
  EXPECT_THAT(Encode(*tokenizer, "é"), ElementsAre(0xc3, 0xa9));
  EXPECT_THAT(Encode(*tokenizer, ""), IsEmpty());
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{259, 260, '!'}), "hello hello!");
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->TokenBytes(260), " hello");
  EXPECT_EQ(tokenizer->TokenToId("Ġhello"), 260);
  EXPECT_EQ(tokenizer->TokenToId(" hello"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenToId("\xff"), std::nullopt);
}

TEST(TokenizerTest, HandsIdsOnInOrderAndStopsWhenTold) {
  json document = SmallTokenizerJson(kMerges);
  document["post_processor"] = FrameJson('!');
  const auto tokenizer = MakeTokenizer(document);
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "hello ";
  std::vector<int32_t> ids;
  const auto take = [&ids](std::span<const int32_t> some) {
    ids.insert(ids.end(), some.begin(), some.end());
    return absl::OkStatus();
  };
  EXPECT_THAT(tokenizer->EncodeTo(text, {.add_special_tokens = true}, take), IsOk());
  EXPECT_EQ(ids.size(), 10'002u) << "a frame, and a space at the end";
  EXPECT_EQ(ids, Encode(*tokenizer, text, true));

  size_t handed = 0;
  const auto stop = [&handed](std::span<const int32_t> some) {
    handed += some.size();
    return absl::AbortedError("enough");
  };
  EXPECT_THAT(tokenizer->EncodeTo(text, {}, stop), StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_LT(handed, 1000u);
}

TEST(TokenizerTest, SplitsByThePatternGiven) {
  const auto tokenizer = MakeTokenizer(QwenLikeJson({{"1", "2"}, {"x", "\n"}, {"!", "\n"}}));
  EXPECT_THAT(Encode(*tokenizer, "12"), ElementsAre('1', '2')) << "digits stand alone";
  EXPECT_THAT(Encode(*tokenizer, "!\n"), ElementsAre(258)) << "newlines stay with punctuation";
  EXPECT_THAT(Encode(*tokenizer, "x\n"), ElementsAre('x', '\n'));
}

TEST(TokenizerTest, PutsASpaceInFrontWhenAsked) {
  json document = SmallTokenizerJson(kMerges);
  document["pre_tokenizer"]["add_prefix_space"] = true;
  document["added_tokens"] = {AddedTokenJson(300, "<x>", true)};
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Encode(*tokenizer, "hello"), ElementsAre(260));
  EXPECT_THAT(Encode(*tokenizer, " hello"), ElementsAre(260));
  EXPECT_THAT(Encode(*tokenizer, "<x>hello"), ElementsAre(300, 260)) << "each text between tokens";
  EXPECT_THAT(Encode(*tokenizer, ""), IsEmpty());
}

TEST(TokenizerTest, NormalisesToNfcWhenAsked) {
  json document = SmallTokenizerJson();
  EXPECT_THAT(Encode(*MakeTokenizer(document), "e\u0301"), ElementsAre('e', 0xcc, 0x81));
  document["normalizer"] = {{"type", "NFC"}};
  EXPECT_THAT(Encode(*MakeTokenizer(document), "e\u0301"), ElementsAre(0xc3, 0xa9));
}

TEST(TokenizerTest, IgnoresMergesWhenAsked) {
  json document = SmallTokenizerJson(kMerges);
  document["model"]["merges"] = json::array();
  EXPECT_THAT(Encode(*MakeTokenizer(document), "hello"), ElementsAre('h', 'e', 'l', 'l', 'o'));
  document["model"]["ignore_merges"] = true;
  EXPECT_THAT(Encode(*MakeTokenizer(document), "hello"), ElementsAre(259));
}

TEST(TokenizerTest, RecognisesAddedTokensInText) {
  json document = SmallTokenizerJson(kMerges);
  document["added_tokens"] = {AddedTokenJson(300, "<end>", true),
                              AddedTokenJson(310, "<tool>", false)};
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_EQ(tokenizer->vocab_size(), 311);
  EXPECT_THAT(Encode(*tokenizer, "hello<end><tool>"), ElementsAre(259, 300, 310));
  EXPECT_TRUE(tokenizer->IsSpecial(300));
  EXPECT_FALSE(tokenizer->IsSpecial(310));
  EXPECT_EQ(tokenizer->TokenToId("<tool>"), 310);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{259, 300, 310}), "hello<tool>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{259, 300, 310}, false), "hello<end><tool>");
}

// A token marked as normalized is found only where normalised text has it, one not so marked only
// where the text itself has it.
TEST(TokenizerTest, LooksForAddedTokensBeforeAndAfterNormalisation) {
  json document = SmallTokenizerJson();
  document["normalizer"] = {{"type", "NFC"}};
  json normalized = AddedTokenJson(300, "<e\u0301>", false);
  normalized["normalized"] = true;
  document["added_tokens"] = {normalized, AddedTokenJson(301, "[e\u0301]", false)};
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Encode(*tokenizer, "<e\u0301>"), ElementsAre(300));
  EXPECT_THAT(Encode(*tokenizer, "<é>"), ElementsAre(300));
  EXPECT_THAT(Encode(*tokenizer, "[e\u0301]"), ElementsAre(301));
  EXPECT_THAT(Encode(*tokenizer, "[é]"), ElementsAre('[', 0xc3, 0xa9, ']'));
}

TEST(TokenizerTest, AnAddedTokenMayBePartOfTheModelsVocabulary) {
  json document = SmallTokenizerJson(kMerges);
  document["model"]["vocab"]["<｜end｜>"] = 400;  // not in the byte-level alphabet
  document["added_tokens"] = {AddedTokenJson(400, "<｜end｜>", true),
                              AddedTokenJson(259, "hello", false)};
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Encode(*tokenizer, "hellohello<｜end｜>"), ElementsAre(259, 259, 400));
  EXPECT_EQ(tokenizer->TokenBytes(400), "<｜end｜>");
  EXPECT_EQ(tokenizer->TokenBytes(259), "hello");
}

TEST(TokenizerTest, AddedTokensDecodeToWhatTheyMatched) {
  json document = SmallTokenizerJson();
  document["added_tokens"] = {AddedTokenJson(300, "café", false), AddedTokenJson(301, "a b", false),
                              AddedTokenJson(302, "Ġword", false)};
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_EQ(tokenizer->TokenBytes(300), "café");
  EXPECT_EQ(tokenizer->TokenBytes(301), "a b");
  EXPECT_EQ(tokenizer->TokenBytes(302), " word") << "written in the byte-level alphabet";
}

TEST(TokenizerTest, AddsTheTokensOfATemplate) {
  json document = SmallTokenizerJson(kMerges);
  document["added_tokens"] = {AddedTokenJson(300, "<s>", true)};
  document["post_processor"] = FrameJson(300);
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Encode(*tokenizer, "hello", true), ElementsAre(300, 259));
  EXPECT_THAT(Encode(*tokenizer, "", true), ElementsAre(300));
  EXPECT_THAT(Encode(*tokenizer, "hello", false), ElementsAre(259));
}

TEST(TokenizerTest, IdsWithoutATokenAreNothing) {
  const auto tokenizer = MakeTokenizer(SmallTokenizerJson());
  for (const int32_t id : {256, 1 << 20, -1, std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{'a', id, 'b'}), "ab");
  }
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = MakeTokenizer(SmallTokenizerJson());
  EXPECT_THAT(tokenizer->Encode("abc\xff", false), IsInvalidArgument("byte offset 3"));
  EXPECT_THAT(tokenizer->Encode("\xed\xa0\x80", false), IsInvalidArgument("byte offset 0"));
  EXPECT_THAT(Encode(*tokenizer, std::string_view("\0a", 2)), ElementsAre(0, 'a'));
}

// A quadratic step anywhere would take 64 times as long for 8 times the text.
TEST(TokenizerTest, AMebibyteOfOneCharacterTakesNearlyLinearTime) {
  json document =
      QwenLikeJson({{"a", "a"}, {"aa", "aa"}, {" ", " "}, {"\n", "\n"}, {"\xcc", "\x81"}});
  document["added_tokens"] = {AddedTokenJson(300, "<x>", true), AddedTokenJson(301, "\t\t", true)};
  document["added_tokens"][1]["lstrip"] = true;
  document["added_tokens"][1]["rstrip"] = true;
  const auto tokenizer = MakeTokenizer(document);
  const auto seconds_for = [&](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return LeastCpuSeconds([&] { EXPECT_THAT(tokenizer->Encode(text, false), IsOk()); });
  };
  constexpr size_t kMebibyte = 1 << 20;
  for (const char* const unit : {"a", " ", "\n", " \n", "\t", "7", "'", "<", "<x>", "\U0001F600",
                                 "中", "\u0301", "\u0301\u0316", "a\u0301", "\u1100\u1161"}) {
    EXPECT_LT(seconds_for(unit, kMebibyte), 32 * seconds_for(unit, kMebibyte / 8)) << unit;
  }
}

TEST(TokenizerTest, ManyThreadsMayEncodeAtOnce) {
  const auto tokenizer = MakeTokenizer(SmallTokenizerJson(kMerges));
  const std::string text = "hello hello\n12 " + std::string(1000, 'l') + " é";
  const std::vector<int32_t> expected = Encode(*tokenizer, text);
  std::vector<int> agreements(4, 0);
  std::vector<std::thread> threads;
  for (int& agreement : agreements) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto ids = tokenizer->Encode(text, false);
        if (ids.ok() && *ids == expected && tokenizer->Decode(*ids) == text) ++agreement;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(agreements, ElementsAre(50, 50, 50, 50));
}

TEST(TokenizerTest, RefusesInconsistentFiles) {
  struct Case {
    const char* pointer;
    json value;
    const char* message;
  };
  const Case cases[] = {
      {"/model/vocab/b", 'a', "id 97 is given to"},
      {"/model/vocab/中", 500, "token '中' with id 500 is not written in the byte-level alphabet"},
      {"/model/merges/0", "q zz", "'zz' is not in the vocabulary"},
      {"/model/merges/0", "q z", "'qz' is not in the vocabulary"},
      {"/model/merges/0", "q 中", "not written in the byte-level alphabet"},
      {"/added_tokens/0", AddedTokenJson('a', "<x>", true), "id 97 is given to"},
      {"/added_tokens/0", AddedTokenJson(700, "hello", true), "has id 700, but id 259"},
      {"/added_tokens",
       {AddedTokenJson(700, "<x>", true), AddedTokenJson(701, "<x>", true)},
       "'<x>' occurs twice"},
      {"/added_tokens",
       {AddedTokenJson(700, "<x>", true), AddedTokenJson(700, "<y>", true)},
       "id 700 is given to"},
      {"/post_processor", FrameJson(9999), "post_processor adds id 9999"},
      {"/pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", "a("}}}, {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}}}}},
       "'a(' is malformed at offset 2"},
  };
  for (const Case& broken : cases) {
    json document = SmallTokenizerJson(kMerges);
    document[json::json_pointer(broken.pointer)] = broken.value;
    EXPECT_THAT(Tokenizer::FromJson(document.dump()), IsInvalidArgument(broken.message));
  }
}

TEST(TokenizerTest, AnIncompleteAlphabetIsFineUntilAByteIsMissed) {
  json document = SmallTokenizerJson();
  document["model"]["vocab"].erase("z");
  const auto tokenizer = MakeTokenizer(document);
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(tokenizer->Encode("abz", false), IsInvalidArgument("byte 0x7a"));
  document["model"]["unk_token"] = "a";
  EXPECT_THAT(Encode(*MakeTokenizer(document), "bzz"), ElementsAre('b', 'a', 'a'));
  document["model"]["byte_fallback"] = true;
  EXPECT_THAT(Tokenizer::FromJson(document.dump()), IsUnimplemented("byte_fallback", "0x7a"));
}

TEST(TokenizerTest, LoadNamesTheFile) {
  const TempDir dir;
  const std::string good = dir.Write("good.json", SmallTokenizerJson(kMerges).dump());
  const auto tokenizer = Tokenizer::Load(good);
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_THAT(Encode(**tokenizer, "hello"), ElementsAre(259));
  EXPECT_THAT(Tokenizer::Load(dir.Write("bad.json", "{")), IsInvalidArgument("bad.json"));
  EXPECT_THAT(Tokenizer::Load(dir.File("absent.json")), IsNotFound("absent.json"));
}

}  // namespace
}  // namespace tlm
