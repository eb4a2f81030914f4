#include "server/speculation/token_lookup.h"

#include <gtest/gtest.h>

#include <random>

namespace tlm {
namespace {

using Tokens = std::vector<int32_t>;

// `count` tokens of [first, first + range).
Tokens RandomTokens(size_t count, int32_t range, uint32_t seed, int32_t first = 0) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (int32_t& token : tokens) {
    token = first + static_cast<int32_t>(random() % static_cast<uint32_t>(range));
  }
  return tokens;
}

void Append(Tokens& tokens, std::span<const int32_t> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

Draft DraftAfter(const Tokens& tokens, int64_t max_tokens, size_t prompt_tokens) {
  MatchRecord everyone;
  TokenLookup lookup(static_cast<int64_t>(prompt_tokens), everyone);
  lookup.Extend(tokens);
  return lookup.Propose(tokens, max_tokens);
}

Draft DraftAfter(const Tokens& tokens, int64_t max_tokens) {
  return DraftAfter(tokens, max_tokens, tokens.size());
}

TEST(MatchRecordTest, ExpectsLongMatchesToGoOnAndShortOnesNotBeforeAnythingIsKnown) {
  const MatchRecord record;
  EXPECT_LT(record.Chance(2, nullptr), 0.4);
  EXPECT_LT(record.Chance(3, nullptr), 0.5);
  EXPECT_GT(record.Chance(8, nullptr), 0.7);
  EXPECT_GT(record.Chance(1000, nullptr), 0.85);
  for (int64_t length = 3; length < 40; ++length) {
    EXPECT_GE(record.Chance(length, nullptr), record.Chance(length - 1, nullptr)) << length;
  }
}

TEST(MatchRecordTest, ConvergesToHowOftenGuessesComeTrueClassByClass) {
  std::mt19937 random(1);
  std::bernoulli_distribution rarely(0.15);
  std::bernoulli_distribution mostly(0.95);
  MatchRecord record;
  for (int i = 0; i < 4000; ++i) {
    record.Add(2, mostly(random));
    record.Add(40, rarely(random));
  }
  EXPECT_NEAR(record.Chance(2, nullptr), 0.95, 0.04);
  EXPECT_NEAR(record.Chance(40, nullptr), 0.15, 0.06);
  EXPECT_EQ(record.Chance(5, nullptr), MatchRecord().Chance(5, nullptr));
}

TEST(MatchRecordTest, IsNeverCertain) {
  MatchRecord right;
  MatchRecord wrong;
  for (int i = 0; i < 100'000; ++i) {
    right.Add(9, true);
    wrong.Add(9, false);
  }
  EXPECT_LT(right.Chance(9, nullptr), 1);
  EXPECT_GT(right.Chance(9, nullptr), 0.99);
  EXPECT_LT(right.Chance(9, &right), 1);
  EXPECT_GT(wrong.Chance(9, nullptr), 0);
  EXPECT_GT(wrong.Chance(9, &wrong), 0);
}

TEST(MatchRecordTest, ForgetsAChangedSequenceWithinAFewDozenJudgements) {
  MatchRecord own(MatchRecord::kOwnMemory);
  const MatchRecord everyone;
  for (int i = 0; i < 1000; ++i) own.Add(4, true);
  EXPECT_GT(own.Chance(4, &everyone), 0.85);
  for (int i = 0; i < 36; ++i) own.Add(4, false);
  EXPECT_LT(own.Chance(4, &everyone), 0.4);
}

TEST(MatchRecordTest, BeginsFromThePriorAndLeavesIt) {
  MatchRecord everyone;
  for (int i = 0; i < 1000; ++i) everyone.Add(2, true);
  MatchRecord own(MatchRecord::kOwnMemory);
  EXPECT_EQ(own.Chance(2, &everyone), everyone.Chance(2, nullptr));
  for (int i = 0; i < 24; ++i) own.Add(2, false);
  EXPECT_LT(own.Chance(2, &everyone), 0.35);
}

TEST(TokenLookupTest, GuessesWhatFollowedTheLastTokens) {
  const Draft draft = DraftAfter({5, 6, 7, 8, 9, 1, 5, 6}, 3);
  EXPECT_EQ(draft.tokens, (Tokens{7, 8, 9}));
  ASSERT_EQ(draft.chances.size(), 3);
  const MatchRecord fresh;
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(draft.chances[static_cast<size_t>(i)], fresh.Chance(2 + i, nullptr));
  }
}

TEST(TokenLookupTest, GuessesNothingWithoutAMatchOfTwo) {
  EXPECT_TRUE(DraftAfter({}, 4).tokens.empty());
  EXPECT_TRUE(DraftAfter({1}, 4).tokens.empty());
  EXPECT_TRUE(DraftAfter({1, 2, 3, 1}, 4).tokens.empty());
  EXPECT_TRUE(DraftAfter({1, 2, 3, 1, 2}, 0).tokens.empty());
  EXPECT_FALSE(DraftAfter({1, 2, 3, 1, 2}, 1).tokens.empty());
}

TEST(TokenLookupTest, PrefersTheLongestMatchThenTheLatest) {
  // Behind 1 2 3: 10 once; behind 2 3 alone: 20, later.
  EXPECT_EQ(DraftAfter({1, 2, 3, 10, 9, 2, 3, 20, 1, 2, 3}, 1).tokens, (Tokens{10}));
  EXPECT_EQ(DraftAfter({1, 2, 3, 10, 1, 2, 3, 20, 1, 2, 3}, 1).tokens, (Tokens{20}));
}

TEST(TokenLookupTest, RepetitionsGiveDraftsOfFullLength) {
  EXPECT_EQ(DraftAfter({4, 4, 4}, 5).tokens, (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(DraftAfter({9, 1, 2, 3, 1, 2, 3, 1, 2}, 7).tokens, (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(TokenLookupTest, TokensOfAnyBatchOfArrivalsGiveTheSameDrafts) {
  const Tokens tokens = RandomTokens(3000, 12, 3);
  MatchRecord everyone_alone;
  MatchRecord everyone_batched;
  TokenLookup alone(500, everyone_alone);
  TokenLookup batched(500, everyone_batched);
  std::mt19937 random(4);
  for (size_t n = 0; n < tokens.size();) {
    const size_t next = std::min(n + random() % 40, tokens.size());
    while (n < next) alone.Extend(std::span(tokens).first(++n));
    const auto so_far = std::span(tokens).first(next);
    batched.Extend(so_far);
    const Draft one = alone.Propose(so_far, 8);
    const Draft other = batched.Propose(so_far, 8);
    ASSERT_EQ(one.tokens, other.tokens) << next;
    ASSERT_EQ(one.chances, other.chances) << next;
  }
}

// A match that goes on is followed without a new choice: it is the longest all the same.
TEST(TokenLookupTest, FollowsTheLongestMatchThroughATextOfRareTokens) {
  Tokens tokens = RandomTokens(400, 100, 5);
  const Tokens copied(tokens.begin() + 100, tokens.begin() + 180);
  Append(tokens, copied);
  MatchRecord everyone;
  TokenLookup lookup(400, everyone);
  for (size_t n = 400; n < tokens.size(); ++n) {
    const auto so_far = std::span(tokens).first(n);
    lookup.Extend(so_far);
    // By comparing with every place there is.
    int64_t longest = 0;
    for (size_t place = 0; place + 1 < n; ++place) {
      int64_t length = 0;
      while (length < MatchRecord::kLongest && static_cast<size_t>(length) <= place &&
             tokens[place - static_cast<size_t>(length)] ==
                 tokens[n - 1 - static_cast<size_t>(length)]) {
        ++length;
      }
      longest = std::max(longest, length);
    }
    const Draft draft = lookup.Propose(so_far, 1);
    ASSERT_EQ(draft.tokens.empty(), longest < TokenLookup::kMinMatch) << n;
    if (n < 404) continue;
    ASSERT_EQ(draft.tokens[0], tokens[n]) << n;
  }
}

// The true source is the oldest of 200 places where the first two tokens stood.
TEST(TokenLookupTest, FindsALongerMatchThatFrequentTokensHidBehindARareOne) {
  Tokens tokens = {7, 8, 100, 101, 102, 103};
  for (int32_t i = 0; i < 200; ++i) Append(tokens, Tokens{7, 8, 1000 + i});
  Append(tokens, Tokens{7, 8});
  EXPECT_NE(DraftAfter(tokens, 1).tokens, (Tokens{100}));
  Append(tokens, Tokens{100, 101});
  EXPECT_EQ(DraftAfter(tokens, 2).tokens, (Tokens{102, 103}));
}

TEST(TokenLookupTest, GoesOnWhereAnEditedCopyBrokeOff) {
  // Two passages with the same 50 51 52 in them; the copy is of the first, with 40 changed to 49.
  const Tokens first = {10, 11, 12, 13, 14, 40, 50, 51, 52, 20, 21};
  const Tokens second = {30, 50, 51, 52, 31};
  Tokens tokens = first;
  Append(tokens, second);
  const size_t prompt = tokens.size();
  Append(tokens, Tokens{10, 11, 12, 13, 14, 49, 50, 51});
  EXPECT_EQ(DraftAfter(tokens, 3, prompt).tokens, (Tokens{52, 20, 21}));
  // Without a copy before it, the latest place counts.
  tokens.resize(prompt);
  Append(tokens, Tokens{49, 50, 51});
  EXPECT_EQ(DraftAfter(tokens, 2, prompt).tokens, (Tokens{52, 31}));
}

// A source that repeats itself with probability p, and else gives a token never seen.
TEST(TokenLookupTest, ChancesAreHowOftenGuessesComeTrue) {
  for (const double repeats : {0.6, 0.8, 0.95}) {
    std::mt19937 random(6);
    std::bernoulli_distribution goes_on(repeats);
    Tokens tokens = RandomTokens(40'000, 1'000'000, 7);
    int32_t unseen = 1'000'000;
    const size_t prompt = tokens.size();
    MatchRecord everyone;
    TokenLookup lookup(static_cast<int64_t>(prompt), everyone);
    double expected = 0;
    double hit = 0;
    double judged = 0;
    size_t source = 0;
    while (judged < 4000) {
      // Three tokens of a place not copied yet, then on from there while it goes on.
      for (int i = 0; i < 3; ++i) tokens.push_back(tokens[source++]);
      bool on = true;
      while (on) {
        lookup.Extend(tokens);
        const Draft draft = lookup.Propose(tokens, 1);
        ASSERT_EQ(draft.tokens.size(), 1);
        on = goes_on(random);
        tokens.push_back(on ? tokens[source++] : unseen++);
        if (tokens.size() > prompt + 2000) {
          expected += draft.chances[0];
          hit += draft.tokens[0] == tokens.back();
          ++judged;
        }
      }
    }
    EXPECT_NEAR(hit / judged, repeats, 0.02);
    ASSERT_LT(source, prompt);
    EXPECT_NEAR(expected / judged, hit / judged, 0.04) << repeats;
  }
}

TEST(TokenLookupTest, OneSequencesJudgementsAreTheBeginningOfTheNext) {
  MatchRecord everyone;
  const Tokens loop = RandomTokens(50, 1000, 8);
  Tokens tokens;
  for (int i = 0; i < 20; ++i) Append(tokens, loop);
  TokenLookup first(50, everyone);
  first.Extend(tokens);
  TokenLookup second(150, everyone);
  const auto prompt = std::span(tokens).first(150);
  second.Extend(prompt);
  EXPECT_GT(second.Propose(prompt, 1).chances[0], 0.95);
}

TEST(TokenLookupTest, JudgesNothingOfThePrompt) {
  MatchRecord everyone;
  TokenLookup lookup(3000, everyone);
  lookup.Extend(Tokens(3000, 4));
  for (const int64_t length : {2, 8, 32}) {
    EXPECT_EQ(everyone.Chance(length, nullptr), MatchRecord().Chance(length, nullptr));
  }
  lookup.Extend(Tokens(3001, 4));
  EXPECT_GT(everyone.Chance(32, nullptr), MatchRecord().Chance(32, nullptr));
}

// Linear time: in quadratic time these would take hours.
TEST(TokenLookupTest, LongSequencesOfShortPeriodsTakeLinearTime) {
  constexpr size_t kTokens = 1'000'000;
  for (size_t period = 1; period <= 5; ++period) {
    Tokens tokens(kTokens);
    for (size_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<int32_t>(i % period);
    const Draft of_output = DraftAfter(tokens, 16, 10);
    const Draft of_prompt = DraftAfter(tokens, 16, kTokens);
    ASSERT_EQ(of_output.tokens.size(), 16);
    EXPECT_EQ(of_output.tokens, of_prompt.tokens);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(of_output.tokens[i], static_cast<int32_t>((kTokens + i) % period));
    }
  }
  // Every pair of tokens stands at a quarter of all places, and no match is long.
  DraftAfter(RandomTokens(200'000, 2, 9), 16, 10);
}

}  // namespace
}  // namespace tlm
