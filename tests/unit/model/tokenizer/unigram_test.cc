#include "model/tokenizer/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

using Pieces = std::vector<std::pair<std::string, double>>;

struct Model {
  Vocabulary vocabulary;
  std::vector<double> scores;
};

Model ModelOf(const Pieces& pieces) {
  std::vector<VocabularyEntry> entries;
  Model model;
  for (const auto& [piece, score] : pieces) {
    entries.push_back({static_cast<int32_t>(entries.size()), piece, true});
    model.scores.push_back(score);
  }
  auto vocabulary = Vocabulary::Create(entries);
  TLM_CHECK(vocabulary.ok());
  model.vocabulary = *std::move(vocabulary);
  return model;
}

std::vector<std::string> Encode(const Pieces& pieces, std::string_view text,
                                bool byte_fallback = false) {
  const Model model = ModelOf(pieces);
  const auto unigram = Unigram::Create(&model.vocabulary, model.scores,
                                       {.unknown_id = 0, .byte_fallback = byte_fallback});
  EXPECT_THAT(unigram, IsOk());
  std::vector<int32_t> ids;
  EXPECT_THAT(unigram->Encode(text, &ids), IsOk());
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.emplace_back(model.vocabulary.Bytes(id));
  return tokens;
}

// The example of Hugging Face's own documentation.
const Pieces kExample = {{"<unk>", 0}, {"a", 0},  {"b", 0},   {"c", 0},    {"d", 0},
                         {"cd", 1},    {"ab", 2}, {"abc", 5}, {"abcd", 10}};

TEST(UnigramTest, FindsTheLikeliestDivision) {
  EXPECT_THAT(Encode(kExample, "abcd"), ElementsAre("abcd"));
  EXPECT_THAT(Encode(kExample, "abcacdabd"), ElementsAre("abc", "a", "cd", "ab", "d"));
  EXPECT_THAT(Encode(kExample, ""), ElementsAre());
}

TEST(UnigramTest, NeighboursWithoutAPieceAreOneUnknownToken) {
  EXPECT_THAT(Encode(kExample, "xyaéz"), ElementsAre("<unk>", "a", "<unk>"));
  // Two unknown ones of 90 each are likelier than the piece, but what they are together has an id.
  EXPECT_THAT(Encode({{"<unk>", 100}, {"xy", 100}}, "xyx"), ElementsAre("<unk>"));
  EXPECT_THAT(Encode({{"<unk>", 100}, {"xy", 100}}, "xy"), ElementsAre("xy"));
}

TEST(UnigramTest, TheUnknownCostsTenMoreThanTheLeastLikelyPiece) {
  // "x" is -20 - 10: together with "b" less likely than "xb" or not.
  EXPECT_THAT(Encode({{"<unk>", 0}, {"b", 13}, {"xb", -16}, {"c", -20}}, "xb"), ElementsAre("xb"));
  EXPECT_THAT(Encode({{"<unk>", 0}, {"b", 15}, {"xb", -16}, {"c", -20}}, "xb"),
              ElementsAre("<unk>", "b"));
}

TEST(UnigramTest, WritesUnknownCharactersInBytes) {
  Pieces pieces = kExample;
  pieces.emplace_back("<0xC3>", -5);
  EXPECT_THAT(Encode(pieces, "aé", true), ElementsAre("a", "<unk>")) << "one byte is missing";
  pieces.emplace_back("<0xA9>", -5);
  EXPECT_THAT(Encode(pieces, "aéé", true),
              ElementsAre("a", "<0xC3>", "<0xA9>", "<0xC3>", "<0xA9>"));
  EXPECT_THAT(Encode(pieces, "aé", false), ElementsAre("a", "<unk>"));
}

TEST(UnigramTest, OfEqualDivisionsTheLongestLastPieceWins) {
  EXPECT_THAT(Encode({{"<unk>", -9}, {"-", -1}, {"--", -2}}, "---"), ElementsAre("-", "--"));
}

// The definition: every division tried.
double BestScore(const Pieces& pieces, std::string_view text, double unknown) {
  if (text.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  bool has_character = false;
  const size_t character = FirstCharacter(text).length;
  for (const auto& [piece, score] : pieces) {
    if (text.substr(0, piece.size()) != piece) continue;
    best = std::max(best, score + BestScore(pieces, text.substr(piece.size()), unknown));
    has_character |= piece.size() == character;
  }
  if (!has_character) {
    best = std::max(best, unknown + BestScore(pieces, text.substr(character), unknown));
  }
  return best;
}

TEST(UnigramTest, AgreesWithTheDefinitionOnRandomPieces) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Pieces pieces = {{"<unk>", -16}};  // small whole numbers: sums are exact
    for (int i = 0; i < 8; ++i) {
      std::string piece;
      for (size_t length = 1 + random() % 3; length > 0; --length) piece += "abc"[random() % 3];
      const bool is_new = std::none_of(pieces.begin(), pieces.end(),
                                       [&](const auto& other) { return other.first == piece; });
      if (is_new) pieces.emplace_back(piece, -static_cast<double>(random() % 16));
    }
    std::string text;
    for (int i = 0; i < 9; ++i) text += "abc"[random() % 3];
    double score = 0;
    size_t bytes = 0;
    for (const std::string& token : Encode(pieces, text)) {
      if (token == "<unk>") break;  // may be several characters
      bytes += token.size();
      score += std::find_if(pieces.begin(), pieces.end(), [&](const auto& piece) {
                 return piece.first == token;
               })->second;
    }
    if (bytes == text.size()) {
      ASSERT_EQ(score, BestScore(pieces, text, -26)) << text;
    }
  }
}

TEST(UnigramTest, RefusesImpossibleModels) {
  const auto refuses = [](const char* message) { return IsInvalidArgument(message); };
  const auto create = [](const Pieces& pieces, std::optional<int32_t> unknown_id) {
    const Model model = ModelOf(pieces);
    return Unigram::Create(&model.vocabulary, model.scores,
                           {.unknown_id = unknown_id, .byte_fallback = false})
        .status();
  };
  EXPECT_THAT(create({{"a", 0}}, 1), refuses("model.unk_id is 1, the vocabulary has 1 pieces"));
  EXPECT_THAT(create({{"a", std::numeric_limits<double>::infinity()}}, 0),
              refuses("score of 'a' is inf"));
  EXPECT_THAT(create({{"a", std::numeric_limits<double>::quiet_NaN()}}, 0), refuses("is nan"));
  EXPECT_THAT(create({{std::string(1025, 'a'), 0}}, 0), refuses("1025 bytes"));
  const Vocabulary empty;
  EXPECT_THAT(Unigram::Create(&empty, {}, {}), refuses("is empty"));
}

TEST(UnigramTest, NamesCharactersThatNeedAnUnknownToken) {
  const Model model = ModelOf({{"a", 0}});
  const auto unigram = Unigram::Create(&model.vocabulary, model.scores, {});
  ASSERT_THAT(unigram, IsOk());
  std::vector<int32_t> ids;
  EXPECT_THAT(unigram->Encode("aé", &ids), IsInvalidArgument("character 'é'"));
}

}  // namespace
}  // namespace tlm
