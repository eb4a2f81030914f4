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

  void Add(int64_t match_length, bool came_true);
  // The estimate for a match of this length; `prior`, which may be null, counts like a few
  // judgements of its own. Never exactly 0 or 1.
  double Chance(int64_t match_length, const MatchRecord* prior) const;

 private:
  struct Count {
    double came_true = 0;
    double all = 0;
  };
  std::array<Count, 8> counts_{};  // by class of match lengths
};

// An index of one sequence's tokens: where each run of kLeastMatch tokens stood before, the latest
// first. Every token behind the prompt judges the guess that was, or would have been, made for it:
// what a draft is worth is known without computing one. Memory: a few bytes a token. Not
// thread-safe.
class TokenLookup {
 public:
  // Shorter matches guess nothing.
  static constexpr int64_t kLeastMatch = 2;

  // `everyone`: the record of all sequences, which this adds to and begins from; outlives it.
  TokenLookup(int64_t prompt_tokens, MatchRecord& everyone);

  // `tokens`: all of the sequence, those of the last call and more behind them. Each new token is
  // looked up in constant time, but for a bounded number of places compared.
  void Extend(std::span<const int32_t> tokens);
  // What followed the longest match of the last tokens, of several the latest: at most
  // `max_tokens`. Empty without a match. `tokens` as of the last Extend.
  Draft Propose(std::span<const int32_t> tokens, int64_t max_tokens) const;

 private:
  const int64_t prompt_tokens_;
  MatchRecord& everyone_;
  MatchRecord own_;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_
