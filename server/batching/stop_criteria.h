// Decides when an output ends by its tokens.
#ifndef TLM_SERVER_BATCHING_STOP_CRITERIA_H_
#define TLM_SERVER_BATCHING_STOP_CRITERIA_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tlm {

// The token ids that end an output: end-of-sequence (eos) ids and the caller's stop ids.
class EndingIds {
 public:
  EndingIds() = default;
  // No `eos` id: end-of-sequence is ignored. An id in both lists counts as an eos id.
  explicit EndingIds(std::vector<int32_t> eos, std::vector<int32_t> stop = {})
      : eos_(std::move(eos)), all_(std::move(stop)) {
    all_.insert(all_.end(), eos_.begin(), eos_.end());
    std::ranges::sort(all_);
    all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
  }

  // Ascending, without duplicates.
  const std::vector<int32_t>& all() const { return all_; }
  bool Contains(int32_t id) const { return std::ranges::binary_search(all_, id); }
  bool IsEos(int32_t id) const { return std::ranges::find(eos_, id) != eos_.end(); }

 private:
  std::vector<int32_t> eos_;
  std::vector<int32_t> all_;
};

// OutputAssembler finds stop strings; the engine does not see them.
struct StopCriteria {
  int64_t max_new_tokens = 0;  // >= 1
  int64_t min_new_tokens = 0;  // no ending id is sampled before this many
  EndingIds ending_ids;
};

enum class FinishReason {
  kEos,
  kStopToken,
  kLength,
  kContextLength,
  kTimeLimit,
  kConstraint,          // no token may follow, and the text is incomplete
  kConstraintComplete,  // no token may follow, not even an end token; the text is complete
  kRowsComplete,
};

// Why a sequence ended well.
struct Finish {
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;
};

// Returns why an output ends after its `generated`-th token, `token`, when its sequence has
// `length` tokens; nullopt when it continues. An output ends with an ending id after the first
// min_new_tokens, with the last token requested, or when the sequence fills `max_context`.
inline std::optional<Finish> FinishAt(const StopCriteria& stop, int64_t generated, int32_t token,
                                      int64_t length, int64_t max_context) {
  if (generated > stop.min_new_tokens && stop.ending_ids.Contains(token)) {
    const bool eos = stop.ending_ids.IsEos(token);
    return Finish{eos ? FinishReason::kEos : FinishReason::kStopToken, token};
  }
  if (generated >= stop.max_new_tokens) return Finish{FinishReason::kLength};
  if (length >= max_context) return Finish{FinishReason::kContextLength};
  return std::nullopt;
}

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_STOP_CRITERIA_H_
