// Drafts from a sequence's own tokens: what followed the last ones where they stood before.
#ifndef TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_
#define TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/speculation/draft.h"

namespace tlm {

// How often a guess came true, by the number of tokens before it that matched. Old judgements fade.
// Not thread-safe.
class MatchRecord {
 public:
  // Match lengths from here on are one class.
  static constexpr int64_t kLongest = 32;
  // Judgements of a class that count, about: of one sequence, which may go over from a quotation to
  // prose, and of all.
  static constexpr double kOwnMemory = 32;
  static constexpr double kCommonMemory = 512;

  explicit MatchRecord(double memory = kCommonMemory) : memory_(memory) {}

  void Add(int64_t match_length, bool hit);
  // The estimate for a match of this length; `prior`, which may be null, counts like a few
  // judgements of its own. Never exactly 0 or 1.
  double Chance(int64_t match_length, const MatchRecord* prior) const;

 private:
  struct Count {
    double hit = 0;
    double all = 0;
  };
  double memory_;
  std::array<Count, 8> counts_{};  // by class of match lengths
};

// An index of one sequence's tokens: where each run of kMinMatch tokens stood before, the latest
// first. Every token behind the prompt judges the guess that was, or would have been, made for it:
// what a draft is worth is known without computing one. Memory: at most 16 bytes a token. Not
// thread-safe.
class TokenLookup {
 public:
  // Shorter matches guess nothing.
  static constexpr int64_t kMinMatch = 2;
  // Earlier places of the last tokens that are compared, the latest ones.
  static constexpr int64_t kMaxPlaces = 32;

  // `everyone`: the record of all sequences, which this adds to and begins from; outlives it.
  TokenLookup(int64_t prompt_tokens, MatchRecord& everyone);

  // `tokens`: all of the sequence, those of the last call and more behind them; fewer than 2^31.
  // A token takes constant time: one of the prompt is only noted, one behind it is compared with a
  // bounded number of places, at most MatchRecord::kLongest tokens of each.
  void Extend(std::span<const int32_t> tokens);
  // What followed the longest match of the last tokens, at most `max_tokens`; of several, where the
  // last match broke off, or the latest. Empty without a match. `tokens` as of the last Extend.
  Draft Propose(std::span<const int32_t> tokens, int64_t max_tokens) const;

 private:
  static constexpr int32_t kNowhere = -1;

  size_t Bucket(std::span<const int32_t> tokens) const;
  // Notes where the last of `tokens`, none of which is noted behind it, stands.
  void Note(std::span<const int32_t> tokens);
  // The last of `tokens` has arrived: was it the guess?
  void Judge(std::span<const int32_t> tokens);
  // Follows what stands behind `place` if more tokens match there than in the match now followed.
  void TryMatch(std::span<const int32_t> tokens, int64_t place);
  void FindLongerMatch(std::span<const int32_t> tokens);

  const int64_t prompt_tokens_;
  MatchRecord& everyone_;
  MatchRecord own_{MatchRecord::kOwnMemory};
  // Chains of places whose last kMinMatch tokens have the same hash: heads_ holds the latest
  // place of each bucket, previous_ the one before each place.
  std::vector<int32_t> heads_;
  std::vector<int32_t> previous_;
  // The match that is followed: the guess is the token at source_, behind match_length_ that match.
  int64_t source_ = kNowhere;
  int64_t match_length_ = 0;       // at most MatchRecord::kLongest
  int64_t broken_off_ = kNowhere;  // the guess that ended the last match of some length
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_
