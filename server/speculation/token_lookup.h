// Makes drafts from a sequence's own tokens: the tokens that followed an earlier occurrence of the
// last ones.
#ifndef TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_
#define TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/speculation/draft.h"

namespace tlm {

// How often guesses were right, by the number of matching tokens before the guess. Old judgements
// fade. Not thread-safe.
class MatchRecord {
 public:
  // Match lengths from here on form one class.
  static constexpr int64_t kLongest = 32;
  // About how many judgements of a class count: of one sequence, which may change from a quotation
  // to prose, and of all sequences.
  static constexpr double kOwnMemory = 32;
  static constexpr double kCommonMemory = 512;

  explicit MatchRecord(double memory = kCommonMemory) : memory_(memory) {}

  void Add(int64_t match_length, bool hit);
  // Returns the estimated chance for a match of this length. `prior`, which may be null, counts
  // like a few judgements of this record. Never exactly 0 or 1.
  double Chance(int64_t match_length, const MatchRecord* prior) const;

 private:
  struct Count {
    double hit = 0;
    double all = 0;
  };
  double memory_;
  std::array<Count, 8> counts_{};  // by class of match length
};

// An index of one sequence's tokens: the places where each run of kMinMatch tokens occurred, the
// latest first. Every token after the prompt judges the guess that was, or would have been, made
// for it, so the value of a draft is known without computing one. Memory: at most 16 bytes per
// token. Not thread-safe.
class TokenLookup {
 public:
  // Shorter matches guess nothing.
  static constexpr int64_t kMinMatch = 2;
  // The most earlier places of the last tokens that are compared, the latest first.
  static constexpr int64_t kMaxPlaces = 32;

  // `everyone`: the record of all sequences, which this adds to and uses as its prior; outlives it.
  TokenLookup(int64_t prompt_tokens, MatchRecord& everyone);

  // `tokens`: all tokens of the sequence, those of the last call first; fewer than 2^31. Takes
  // constant time per token: a prompt token is only noted; a later token is compared with a bounded
  // number of places, at most MatchRecord::kLongest tokens of each.
  void Extend(std::span<const int32_t> tokens);
  // Returns the tokens that followed the longest match of the last tokens, at most `max_tokens`. Of
  // several longest matches, prefers the one near which the last match broke off, else the latest.
  // Empty without a match. `tokens` as in the last Extend.
  Draft Propose(std::span<const int32_t> tokens, int64_t max_tokens) const;

 private:
  static constexpr int32_t kNowhere = -1;

  size_t Bucket(std::span<const int32_t> tokens) const;
  // Notes the place of the last token; no later token has been noted.
  void Note(std::span<const int32_t> tokens);
  // Compares the last of `tokens` with the guess for it.
  void Judge(std::span<const int32_t> tokens);
  // Follows the match at `place` if it is longer than the match followed now.
  void TryMatch(std::span<const int32_t> tokens, int64_t place);
  void FindLongerMatch(std::span<const int32_t> tokens);

  const int64_t prompt_tokens_;
  MatchRecord& everyone_;
  MatchRecord own_{MatchRecord::kOwnMemory};
  // Chains of places whose last kMinMatch tokens have the same hash: heads_ stores the latest place
  // of each bucket, previous_ the place before each place.
  std::vector<int32_t> heads_;
  std::vector<int32_t> previous_;
  // The followed match: the guess is the token at source_, after match_length_ matching tokens.
  int64_t source_ = kNowhere;
  int64_t match_length_ = 0;       // at most MatchRecord::kLongest
  int64_t broken_off_ = kNowhere;  // the wrong guess that ended the last long match
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_TOKEN_LOOKUP_H_
