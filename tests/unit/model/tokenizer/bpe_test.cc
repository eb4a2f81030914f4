#include "model/tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

// Tokens are the letters of `alphabet` and whatever the merges make, numbered in that order.
Vocabulary VocabularyOf(std::string_view alphabet, const std::vector<BpeMerge>& merges) {
  std::vector<VocabularyEntry> entries;
  std::map<std::string, bool> seen;
  const auto add = [&](const std::string& bytes) {
    if (seen.emplace(bytes, true).second) {
      entries.push_back({static_cast<int32_t>(entries.size()), bytes, true});
    }
  };
  for (const char letter : alphabet) add(std::string(1, letter));
  for (const auto& [left, right] : merges) add(left + right);
  auto vocabulary = Vocabulary::Create(entries);
  TLM_CHECK(vocabulary.ok());
  return *std::move(vocabulary);
}

std::vector<std::string> Encode(const Vocabulary& vocabulary, const Bpe& bpe,
                                std::string_view word) {
  std::vector<int32_t> ids;
  EXPECT_THAT(bpe.Encode(word, &ids), IsOk());
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.emplace_back(vocabulary.Bytes(id));
  return tokens;
}

// The definition, word for word: quadratic.
std::vector<std::string> NaiveEncode(const std::vector<BpeMerge>& merges, std::string_view word) {
  std::map<BpeMerge, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[merges[rank]] = rank;
  std::vector<std::string> symbols;
  for (const char letter : word) symbols.emplace_back(1, letter);
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best_rank = found->second;
      best = i;
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + best + 1);
  }
}

// Any two tokens known so far may be joined, in any order of rank.
std::vector<BpeMerge> RandomMerges(std::string_view alphabet, std::mt19937* random) {
  std::vector<std::string> tokens;
  for (const char letter : alphabet) tokens.emplace_back(1, letter);
  std::vector<BpeMerge> merges;
  for (int i = 0; i < 12; ++i) {
    const std::string left = tokens[(*random)() % tokens.size()];
    const std::string right = tokens[(*random)() % tokens.size()];
    if (left.size() + right.size() > 8) continue;
    tokens.push_back(left + right);
    merges.emplace_back(left, right);
  }
  std::shuffle(merges.begin(), merges.end(), *random);
  return merges;
}

TEST(BpeTest, JoinsTheLowestRankFirstAndTheLeftmostOfEquals) {
  const std::vector<BpeMerge> merges = {{"b", "c"}, {"a", "b"}, {"a", "a"}};
  const Vocabulary vocabulary = VocabularyOf("abc", merges);
  const auto bpe = Bpe::Create(&vocabulary, merges, {});
  ASSERT_THAT(bpe, IsOk());
  EXPECT_THAT(Encode(vocabulary, *bpe, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(Encode(vocabulary, *bpe, "ab"), ElementsAre("ab"));
  EXPECT_THAT(Encode(vocabulary, *bpe, "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(Encode(vocabulary, *bpe, "c"), ElementsAre("c"));
  EXPECT_THAT(Encode(vocabulary, *bpe, ""), ElementsAre());
}

TEST(BpeTest, AgreesWithTheDefinitionOnRandomMergesAndWords) {
  std::mt19937 random(11);
  constexpr std::string_view kAlphabet = "abc";
  for (int round = 0; round < 300; ++round) {
    const std::vector<BpeMerge> merges = RandomMerges(kAlphabet, &random);
    const Vocabulary vocabulary = VocabularyOf(kAlphabet, merges);
    const auto bpe = Bpe::Create(&vocabulary, merges, {});
    ASSERT_THAT(bpe, IsOk());
    // Lengths on both sides of 32 bytes, where the algorithm changes.
    for (const size_t length : {1, 2, 5, 20, 31, 32, 33, 34, 60, 150}) {
      std::string word;
      while (word.size() < length) word += kAlphabet[random() % kAlphabet.size()];
      ASSERT_EQ(Encode(vocabulary, *bpe, word), NaiveEncode(merges, word)) << word;
    }
  }
}

TEST(BpeTest, TakesKnownWordsWholeWhenMergesAreIgnored) {
  // "abc" is a token, but its merges lead to "ab" and "c".
  const std::vector<BpeMerge> merges = {{"a", "b"}, {"a", "bc"}, {"b", "c"}};
  const Vocabulary vocabulary = VocabularyOf("abc", {{"a", "b"}, {"b", "c"}, {"a", "bc"}});
  const auto merging = Bpe::Create(&vocabulary, merges, {});
  Bpe::Options options;
  options.ignore_merges = true;
  const auto ignoring = Bpe::Create(&vocabulary, merges, options);
  ASSERT_THAT(merging, IsOk());
  ASSERT_THAT(ignoring, IsOk());
  EXPECT_THAT(Encode(vocabulary, *merging, "abc"), ElementsAre("ab", "c"));
  EXPECT_THAT(Encode(vocabulary, *ignoring, "abc"), ElementsAre("abc"));
  EXPECT_THAT(Encode(vocabulary, *ignoring, "abcc"), ElementsAre("ab", "c", "c"));
}

TEST(BpeTest, RefusesMergesOutsideTheVocabulary) {
  const Vocabulary vocabulary = VocabularyOf("ab", {{"a", "b"}});
  EXPECT_THAT(Bpe::Create(&vocabulary, {{"a", "b"}, {"x", "b"}}, {}),
              IsInvalidArgument("merge 1", "'x' is not in the vocabulary"));
  EXPECT_THAT(Bpe::Create(&vocabulary, {{"a", "y"}}, {}),
              IsInvalidArgument("'y' is not in the vocabulary"));
  EXPECT_THAT(Bpe::Create(&vocabulary, {{"b", "a"}}, {}),
              IsInvalidArgument("'ba' is not in the vocabulary"));
}

TEST(BpeTest, NamesBytesWithoutAToken) {
  const Vocabulary vocabulary = VocabularyOf("ab", {});
  const auto bpe = Bpe::Create(&vocabulary, {}, {});
  ASSERT_THAT(bpe, IsOk());
  for (const std::string& word : {std::string("a\xc3z"), std::string(50, 'a') + "\xc3"}) {
    std::vector<int32_t> ids;
    EXPECT_THAT(bpe->Encode(word, &ids), IsInvalidArgument("byte 0xc3"));
  }
}

// "é" is a character, "ü" and "y" have no token, "<0xC3>" and "<0xBC>" are the bytes of "ü".
Vocabulary CharacterVocabulary(bool with_bytes) {
  std::vector<VocabularyEntry> entries = {{0, "<unk>", true}, {1, "a", true}, {2, "é", true},
                                          {3, "aé", true},    {4, "▁", true}, {5, "▁a", true}};
  if (with_bytes) {
    entries.push_back({6, "<0xC3>", true});
    entries.push_back({7, "<0xBC>", true});
  }
  auto vocabulary = Vocabulary::Create(entries);
  TLM_CHECK(vocabulary.ok());
  return *std::move(vocabulary);
}

const std::vector<BpeMerge> kCharacterMerges = {{"a", "é"}, {"▁", "a"}};

std::vector<std::string> EncodeCharacters(Bpe::Options options, std::string_view word) {
  options.symbols = Bpe::Symbols::kCharacters;
  const Vocabulary vocabulary = CharacterVocabulary(options.byte_fallback);
  const auto bpe = Bpe::Create(&vocabulary, kCharacterMerges, options);
  EXPECT_THAT(bpe, IsOk());
  return Encode(vocabulary, *bpe, word);
}

TEST(BpeTest, MergesCharacters) {
  EXPECT_THAT(EncodeCharacters({}, "▁aé"), ElementsAre("▁", "aé"));
  EXPECT_THAT(EncodeCharacters({}, "▁aa"), ElementsAre("▁a", "a"));
}

TEST(BpeTest, UnknownCharactersAreOneTokenEachOrTogether) {
  Bpe::Options options;
  options.unknown_id = 0;
  EXPECT_THAT(EncodeCharacters(options, "yüay"), ElementsAre("<unk>", "<unk>", "a", "<unk>"));
  options.fuse_unknown = true;
  EXPECT_THAT(EncodeCharacters(options, "yüay"), ElementsAre("<unk>", "a", "<unk>"));
  const std::string many(100, 'y');  // longer than what is merged without a heap
  EXPECT_THAT(EncodeCharacters(options, many + "a"), ElementsAre("<unk>", "a"));
}

TEST(BpeTest, WritesCharactersWithoutATokenInBytes) {
  Bpe::Options options;
  options.byte_fallback = true;
  options.unknown_id = 0;
  EXPECT_THAT(EncodeCharacters(options, "aüé"), ElementsAre("a", "<0xC3>", "<0xBC>", "é"));
  EXPECT_THAT(EncodeCharacters(options, "aya"), ElementsAre("a", "<unk>", "a")) << "no byte 0x79";
  // As Hugging Face's tokenizers 0.23 does it: the unknown token waits for the next known one.
  EXPECT_THAT(EncodeCharacters(options, "yüa"), ElementsAre("<0xC3>", "<0xBC>", "<unk>", "a"));
}

TEST(BpeTest, NamesCharactersWithoutAToken) {
  const Vocabulary vocabulary = CharacterVocabulary(false);
  Bpe::Options options;
  options.symbols = Bpe::Symbols::kCharacters;
  const auto bpe = Bpe::Create(&vocabulary, kCharacterMerges, options);
  ASSERT_THAT(bpe, IsOk());
  std::vector<int32_t> ids;
  EXPECT_THAT(bpe->Encode("aü", &ids), IsInvalidArgument("character 'ü'"));
}

}  // namespace
}  // namespace tlm
