// Drafts of outputs that are known beforehand, with a chosen share of wrong guesses.
#ifndef TLM_TESTS_SUPPORT_KNOWN_DRAFTS_H_
#define TLM_TESTS_SUPPORT_KNOWN_DRAFTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/speculation/draft.h"

namespace tlm {

// Guesses the rest of the added output that begins with the sequence's tokens; of several, the
// first added. Not thread-safe.
class KnownDrafts : public DraftSource {
 public:
  // `truth` percent of the guesses are right, the others are random tokens. If `truth` is below
  // 100, it guesses past the outputs' ends, too.
  KnownDrafts(int truth, int64_t vocab_size) : truth_(truth), vocab_size_(vocab_size) {}

  void Add(std::span<const int32_t> prompt, std::span<const int32_t> output,
           uint32_t output_index = 0) {
    Known& known = all_.emplace_back(Known{.output_index = output_index, .tokens = {}});
    known.tokens.assign(prompt.begin(), prompt.end());
    known.tokens.insert(known.tokens.end(), output.begin(), output.end());
  }

  int64_t Lag(int64_t, std::span<const int32_t>) const override { return 0; }
  absl::Status Propose(std::span<Guess> guesses) override {
    if (fails_) return absl::InternalError("the draft source is broken");
    for (Guess& guess : guesses) Fill(guess);
    return absl::OkStatus();
  }
  void Forget(int64_t sequence) override { forgotten_.insert(sequence); }

  void set_fails() { fails_ = true; }
  int64_t guesses() const { return guesses_; }
  const std::set<int64_t>& forgotten() const { return forgotten_; }

 private:
  struct Known {
    uint32_t output_index = 0;
    std::vector<int32_t> tokens;  // prompt, then output
  };

  void Fill(Guess& guess) {
    EXPECT_GE(guess.max_tokens, 1);
    EXPECT_EQ(forgotten_.count(guess.sequence), 0);
    ++guesses_;
    const auto known = std::ranges::find_if(all_, [&guess](const Known& known) {
      return known.output_index == guess.output_index &&
             std::ranges::mismatch(guess.tokens, known.tokens).in1 == guess.tokens.end();
    });
    if (known == all_.end()) return;
    for (size_t i = guess.tokens.size(); std::ssize(guess.draft) < guess.max_tokens; ++i) {
      const bool lies = static_cast<int>(random_() % 100) >= truth_;
      if (!lies && i >= known->tokens.size()) return;
      guess.draft.push_back(lies ? static_cast<int32_t>(random_() % vocab_size_)
                                 : known->tokens[i]);
    }
  }

  const int truth_;
  const uint64_t vocab_size_;
  bool fails_ = false;
  int64_t guesses_ = 0;
  std::vector<Known> all_;
  std::set<int64_t> forgotten_;
  std::mt19937_64 random_{17};
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_KNOWN_DRAFTS_H_
