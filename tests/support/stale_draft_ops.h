// A backend that does not overwrite what it has computed of a guess that turned out to be wrong.
#ifndef TLM_TESTS_SUPPORT_STALE_DRAFT_OPS_H_
#define TLM_TESTS_SUPPORT_STALE_DRAFT_OPS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "model/ops/forwarding_ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

// The first write to a place of the cache that a rejected token of a draft has written is lost, as
// if that token's keys and values were taken for those of the token drawn. Writes to the cache as
// the CPU's backend lays it out (model/ops/cpu/kernels/kernels.h).
class StaleDraftOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::StatusOr<DeviceBatch> BeginBatch(const Batch& batch) override {
    batch_ = batch;
    return ops_.BeginBatch(batch);
  }

  absl::Status PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                const TokenLayout& layout, const KvLayer& cache) override {
    std::vector<std::pair<std::byte*, std::vector<std::byte>>> kept;
    const size_t bytes = DTypeBytes(cache.dtype);
    for (int64_t token = 0; token < batch_.tokens(); ++token) {
      const Slot slot = SlotOf(token);
      if (stale_.count(slot) == 0) continue;
      for (std::byte* const element : ElementsOf(slot, cache)) {
        kept.emplace_back(element, std::vector<std::byte>(element, element + bytes));
      }
    }
    absl::Status status = ops_.PrepareAttention(qkv, transform, layout, cache);
    for (const auto& [element, value] : kept) std::memcpy(element, value.data(), bytes);
    return status;
  }

  absl::StatusOr<BatchResult> AwaitBatch() override {
    absl::StatusOr<BatchResult> result = ops_.AwaitBatch();
    if (!result.ok()) return result;
    for (int64_t token = 0; token < batch_.tokens(); ++token) stale_.erase(SlotOf(token));
    bool agrees = true;
    for (size_t i = 1; i < batch_.jobs.size(); ++i) {
      const SamplingJob& job = batch_.jobs[i];
      const auto& drawn = result->tokens[i - 1];
      if (job.draft.empty()) {
        agrees = true;
      } else {
        agrees = agrees && drawn.ok() && drawn->id == job.draft.back();
        if (!agrees) stale_.insert(SlotOf(batch_.logits_rows[static_cast<size_t>(job.row)]));
      }
    }
    return result;
  }

 private:
  using Slot = std::pair<int64_t, int64_t>;  // KV block, place in it

  Slot SlotOf(int64_t token) const {
    const auto t = static_cast<size_t>(token);
    const int64_t position = batch_.positions[t];
    const int64_t entry = batch_.sequence_of[t] * batch_.max_blocks + position / kBlockTokens;
    return {batch_.block_tables[static_cast<size_t>(entry)], position % kBlockTokens};
  }

  // Of all heads' keys and values at one place of a layer.
  static std::vector<std::byte*> ElementsOf(const Slot& slot, const KvLayer& cache) {
    const auto& [block, place] = slot;
    const int64_t head_elements = kBlockTokens * cache.head_dim;
    std::vector<std::byte*> elements;
    const auto add = [&](int64_t index) {
      elements.push_back(static_cast<std::byte*>(cache.data) +
                         static_cast<size_t>(index) * DTypeBytes(cache.dtype));
    };
    for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
      const int64_t keys = (block * cache.layers * 2 * cache.num_kv_heads + head) * head_elements;
      const int64_t values = keys + cache.num_kv_heads * head_elements;
      for (int64_t d = 0; d < cache.head_dim; ++d) {
        add(keys + d * kBlockTokens + place);
        add(values + place * cache.head_dim + d);
      }
    }
    return elements;
  }

  Batch batch_;  // the running one
  std::set<Slot> stale_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_STALE_DRAFT_OPS_H_
