// The counts of a sequence's tokens so far, for the penalties of sampling.
#ifndef TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_
#define TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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
  // The entries of seen() that would be there for the ids of `draft` if these had been added to the
  // output, by rising id. *entries is overwritten; its memory is used again.
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

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_TOKEN_HISTORY_H_
