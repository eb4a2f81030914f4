// The inputs of a sample, and the scores that are requested with it.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_JOB_H_
#define TLM_MODEL_SAMPLING_SAMPLING_JOB_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tlm {

// The sampling parameters of a request, all set; ranges are checked where requests are read. They
// are applied in this order: logit_bias, allowed and banned ids, penalties (repetition, frequency,
// presence), temperature, top_k, typical_p, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0, finite; 0 = greedy
  uint32_t top_k = 0;               // keep the k most likely tokens; 0 = all
  float top_p = 1.0f;               // (0, 1]: keep the smallest set with at least this probability
  float min_p = 0.0f;               // [0, 1]: keep tokens with p >= min_p * p(most likely)
  float typical_p = 1.0f;           // (0, 1]: locally typical sampling (Meister et al. 2023)
  float repetition_penalty = 1.0f;  // > 0, finite (Keskar et al. 2019, section 4.1); 1 = none
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  uint64_t seed = 0;
  // Pairs in ascending order of id, without repetition; finite.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<int32_t> allowed_token_ids = {};  // ascending, without repetition; empty = all
  std::vector<int32_t> banned_token_ids = {};   // ascending, without repetition

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// The counts of a sequence's tokens so far, by token id, for penalties. Not thread-safe. Memory
// grows with the number of different ids.
class TokenHistory {
 public:
  struct Seen {
    bool in_prompt = false;
    uint32_t in_output = 0;  // times
  };

  void AddPrompt(std::span<const int32_t> ids) {
    for (const int32_t id : ids) seen_[id].in_prompt = true;
  }
  void AddOutput(int32_t id) { ++seen_[id].in_output; }

  // Entries are in no particular order: the treatment of one id must not depend on the others.
  const absl::flat_hash_map<int32_t, Seen>& seen() const { return seen_; }
  // Writes the entries that seen() would have for the ids of `draft` if these had been added to the
  // output, by rising id. Overwrites *entries and reuses its memory.
  void SeenWith(std::span<const int32_t> draft,
                std::vector<std::pair<int32_t, Seen>>* entries) const;

 private:
  absl::flat_hash_map<int32_t, Seen> seen_;
};

inline void TokenHistory::SeenWith(std::span<const int32_t> draft,
                                   std::vector<std::pair<int32_t, Seen>>* entries) const {
  entries->clear();
  for (const int32_t id : draft) entries->emplace_back(id, Seen());
  std::sort(entries->begin(), entries->end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t ids = 0;
  for (size_t i = 0; i < entries->size(); ++ids) {
    const int32_t id = (*entries)[i].first;
    const auto found = seen_.find(id);
    Seen seen = found == seen_.end() ? Seen() : found->second;
    for (; i < entries->size() && (*entries)[i].first == id; ++i) ++seen.in_output;
    (*entries)[ids] = {id, seen};
  }
  entries->resize(ids);
}

// A token with its natural-log probability and its rank by falling probability: 1 is the most
// likely, ties are ranked by id.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0.0f;  // -infinity for a token that may not be sampled
  uint32_t rank = 0;
};

struct SampledToken {
  int32_t id = 0;
  std::optional<ScoredToken> score;  // if requested
  std::vector<ScoredToken> top;      // the most likely tokens, best first; as many as requested
};

// Apart from logits, parameters and the sequence's own tokens, sampling depends only on this, so
// the same request gives the same tokens in any batch and after any interruption.
struct SampleKey {
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position of the sampled token
};

struct LogprobOptions {
  bool logprob = false;
  uint32_t top = 0;
  // Scores are log-softmax of the unmodified logits or, when set, of the distribution that the
  // token was sampled from: after every step of SamplingParams, with -infinity for removed tokens.
  // Greedy sampling uses neither temperature nor truncation, so its distribution is the one after
  // the penalties.
  bool processed = false;
};

// The tokens that may be sampled, when they become known only while the logits are computed.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Waits for the mask: bit id % 64 of word id / 64 is set where the token may be sampled; ids past
  // the last word may not. nullopt when it takes too long. Any thread may call it; the span is
  // valid as long as the job's pointers.
  virtual std::optional<std::span<const uint64_t>> Await() const = 0;
};

// One token to sample in a forward pass: the arguments of Sampler::Sample. The objects that it
// points at must not change until the pass is launched; if the pass runs on the calling thread,
// until its results are there.
struct SamplingJob {
  int32_t row = 0;  // index into Batch::logits_rows
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;
  SampleKey key = {};
  LogprobOptions score = {};
  // Tokens of the output after those of `history`, oldest first: guesses that are not sampled yet.
  std::span<const int32_t> draft = {};
  std::span<const int32_t> banned = {};
  const TokenMask* mask = nullptr;  // null: all tokens; a wait for it may end the job with
                                    // MaskIsLate()
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_JOB_H_
