// The counts of a sequence's tokens so far, for the penalties of sampling.
#ifndef TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_
#define TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"

namespace tlm {

// Counts by token id. Not thread-safe. Memory grows with the number of different ids.
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

  // In no particular order: what is done to one id must not depend on the others.
  const absl::flat_hash_map<int32_t, Seen>& seen() const { return seen_; }

 private:
  absl::flat_hash_map<int32_t, Seen> seen_;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_
