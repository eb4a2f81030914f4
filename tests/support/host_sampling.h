// Draws made on the host from logits that are there: for models without a device.
#ifndef TLM_TESTS_SUPPORT_HOST_DRAWS_H_
#define TLM_TESTS_SUPPORT_HOST_DRAWS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/sampling/sampler.h"

namespace tlm {

// What `draws` choose from `logits` [rows, vocab_size].
inline std::vector<absl::StatusOr<SampledToken>> DrawAll(std::span<const Draw> draws,
                                                         std::span<const float> logits,
                                                         int64_t vocab_size) {
  Sampler sampler;
  std::vector<absl::StatusOr<SampledToken>> tokens;
  for (const Draw& draw : draws) {
    const auto row =
        logits.subspan(static_cast<size_t>(draw.row * vocab_size), static_cast<size_t>(vocab_size));
    tokens.push_back(
        sampler.Sample(row, *draw.params, *draw.history, draw.key, draw.score, draw.banned));
  }
  return tokens;
}

// The ids that draws gave; 0 for those that failed.
inline std::vector<int32_t> DrawnIds(std::span<const absl::StatusOr<SampledToken>> tokens) {
  std::vector<int32_t> ids;
  for (const auto& token : tokens) ids.push_back(token.ok() ? token->id : 0);
  return ids;
}

// Rows `rows` of `logits` [.., vocab_size].
inline std::vector<float> SelectRows(std::span<const float> logits, std::span<const int32_t> rows,
                                     int64_t vocab_size) {
  std::vector<float> selected;
  for (const int32_t row : rows) {
    const auto begin = logits.begin() + row * vocab_size;
    selected.insert(selected.end(), begin, begin + vocab_size);
  }
  return selected;
}

// Draws with what they point at as it was at the time.
class HeldDraws {
 public:
  explicit HeldDraws(std::span<const Draw> draws) {
    for (const Draw& draw : draws) {
      const Held& held = held_.emplace_back(
          Held{*draw.params, *draw.history, {draw.banned.begin(), draw.banned.end()}});
      Draw& copy = draws_.emplace_back(draw);
      copy.params = &held.params;
      copy.history = &held.history;
      copy.banned = held.banned;
    }
  }
  HeldDraws(const HeldDraws&) = delete;
  HeldDraws& operator=(const HeldDraws&) = delete;

  std::span<const Draw> draws() const { return draws_; }

 private:
  struct Held {
    SamplingParams params;
    TokenHistory history;
    std::vector<int32_t> banned;
  };
  std::list<Held> held_;  // stay where they are
  std::vector<Draw> draws_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_HOST_DRAWS_H_
