#include "model/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Pieces as text, tokens as "#id".
std::vector<std::string> Split(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::vector<std::string> contents;
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  std::vector<std::string> pieces;
  EXPECT_THAT(AddedTokenMatcher(tokens, contents)
                  .Split(text,
                         [&](const AddedTokenMatcher::Piece& piece) {
                           pieces.push_back(piece.id.has_value() ? fmt::format("#{}", *piece.id)
                                                                 : std::string(piece.text));
                           return absl::OkStatus();
                         }),
              IsOk());
  return pieces;
}

AddedToken Token(int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  return token;
}

TEST(AddedTokensTest, DividesTextAtTokens) {
  const std::vector<AddedToken> tokens = {Token(1, "<s>"), Token(2, "</s>")};
  EXPECT_THAT(Split(tokens, "a<s>b</s>"), ElementsAre("a", "#1", "b", "#2"));
  EXPECT_THAT(Split(tokens, "<s><s>"), ElementsAre("#1", "#1"));
  EXPECT_THAT(Split(tokens, "<s"), ElementsAre("<s"));
  EXPECT_THAT(Split(tokens, "<<s>"), ElementsAre("<", "#1"));
  EXPECT_THAT(Split(tokens, ""), IsEmpty());
  EXPECT_THAT(Split({}, "text"), ElementsAre("text"));
}

TEST(AddedTokensTest, PrefersTheLeftmostThenTheLongest) {
  const std::vector<AddedToken> tokens = {Token(1, "ab"), Token(2, "abcd"), Token(3, "bcde")};
  EXPECT_THAT(Split(tokens, "abcde"), ElementsAre("#2", "e"));
  EXPECT_THAT(Split(tokens, "abce"), ElementsAre("#1", "ce"));
  EXPECT_THAT(Split(tokens, "xbcde"), ElementsAre("x", "#3"));
}

TEST(AddedTokensTest, SingleWordsTouchNoWordCharacter) {
  std::vector<AddedToken> tokens = {Token(1, "the")};
  tokens[0].single_word = true;
  EXPECT_THAT(Split(tokens, "the-the, (the)"), ElementsAre("#1", "-", "#1", ", (", "#1", ")"));
  EXPECT_THAT(Split(tokens, "then"), ElementsAre("then"));
  EXPECT_THAT(Split(tokens, "bathe"), ElementsAre("bathe"));
  EXPECT_THAT(Split(tokens, "éthe the\u0301"), ElementsAre("éthe the\u0301"));
  EXPECT_THAT(Split(tokens, "the_"), ElementsAre("the_"));
}

TEST(AddedTokensTest, StripTakesWhiteSpaceAlong) {
  std::vector<AddedToken> tokens = {Token(1, "<l>"), Token(2, "<r>"), Token(3, "<n>")};
  tokens[0].lstrip = true;
  tokens[1].rstrip = true;
  EXPECT_THAT(Split(tokens, "a \n\u3000<l> b"), ElementsAre("a", "#1", " b"));
  EXPECT_THAT(Split(tokens, "a <r> \n\u3000b"), ElementsAre("a ", "#2", "b"));
  EXPECT_THAT(Split(tokens, "a <n> b"), ElementsAre("a ", "#3", " b"));
  EXPECT_THAT(Split(tokens, "  <l>"), ElementsAre("#1"));
  EXPECT_THAT(Split(tokens, "<r>  <l>"), ElementsAre("#2", "#1"));
}

// As Hugging Face's tokenizers 0.23 does it.
TEST(AddedTokensTest, TokensOfWhiteSpaceAreFoundInWhiteSpaceTakenAlong) {
  std::vector<AddedToken> tokens = {Token(1, "A"), Token(2, " ")};
  tokens[0].rstrip = true;
  EXPECT_THAT(Split(tokens, "xA  y"), ElementsAre("x", "#1", "#2", "#2", "y"));
  tokens[1].rstrip = true;
  EXPECT_THAT(Split(tokens, "xA  y"), ElementsAre("x", "#1", "#2", "#2", "y"));
  tokens[1].lstrip = true;
  EXPECT_THAT(Split(tokens, "xA  y"), ElementsAre("x", "#1", "y"));
}

TEST(AddedTokensTest, SearchesForTheContentsGiven) {
  std::vector<std::string> pieces;
  const AddedTokenMatcher matcher({Token(4, "e\u0301")}, {"é"});
  EXPECT_THAT(matcher.Split("e\u0301é",
                            [&](const AddedTokenMatcher::Piece& piece) {
                              pieces.emplace_back(piece.id.has_value() ? "token" : piece.text);
                              return absl::OkStatus();
                            }),
              IsOk());
  EXPECT_THAT(pieces, ElementsAre("e\u0301", "token"));
}

TEST(AddedTokensTest, OfTokensThatNormalisationMakesOneTheLargerIdCounts) {
  for (const int32_t first : {4, 5}) {
    const AddedTokenMatcher matcher({Token(first, "e\u0301"), Token(9 - first, "é")}, {"é", "é"});
    EXPECT_THAT(matcher.Split("é",
                              [&](const AddedTokenMatcher::Piece& piece) {
                                EXPECT_EQ(piece.id, 5);
                                return absl::OkStatus();
                              }),
                IsOk());
  }
}

TEST(AddedTokensTest, StopsAtTheFirstErrorOfTheSink) {
  const AddedTokenMatcher matcher({Token(1, "b")}, {"b"});
  int calls = 0;
  EXPECT_THAT(matcher.Split("abc",
                            [&](const AddedTokenMatcher::Piece&) {
                              return ++calls == 2 ? NotFound("here") : absl::OkStatus();
                            }),
              StatusIs(absl::StatusCode::kNotFound, "here"));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tlm
