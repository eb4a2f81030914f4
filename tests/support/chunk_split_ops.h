// A backend whose attention depends on where a prompt was cut into chunks.
#ifndef TLM_TESTS_SUPPORT_CHUNK_SPLIT_OPS_H_
#define TLM_TESTS_SUPPORT_CHUNK_SPLIT_OPS_H_

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "model/ops/cpu/convert.h"
#include "model/ops/forwarding_ops.h"

namespace tlm {

// Every token's keys are folded in two parts, those before its chunk and those of its chunk, as
// implementations do that keep one kernel for the cache and one for the new tokens. The formula is
// right; the border moves with the schedule. Reads the cache as the CPU's backend lays it out
// (model/ops/cpu/kernels/kernels.h).
class ChunkSplitOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status Attention(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                         const KvLayer& cache, const Rows& out) override {
    int64_t chunk_begin = 0;  // position of the chunk's first token
    for (int64_t t = 0; t < layout.tokens; ++t) {
      const int64_t position = layout.positions[t];
      if (t == 0 || layout.sequence_of[t] != layout.sequence_of[t - 1]) chunk_begin = position;
      const int64_t first = window > 0 ? std::max<int64_t>(position + 1 - window, 0) : 0;
      for (int64_t head = 0; head < q.cols / cache.head_dim; ++head) {
        const float* query = q.as<float>() + t * q.stride + head * cache.head_dim;
        const int64_t kv_head = head / (q.cols / cache.head_dim / cache.num_kv_heads);
        Part all(cache.head_dim);
        for (const auto& [begin, end] : {std::pair(first, std::max(first, chunk_begin)),
                                         std::pair(std::max(first, chunk_begin), position + 1)}) {
          Part part(cache.head_dim);
          for (int64_t j = begin; j < end; ++j) {
            const Slot slot = SlotAt(layout, cache, t, j, kv_head);
            part.AddKey(query, slot.key.data(), slot.value.data(), scale);
          }
          all.Fold(part);
        }
        float* result = out.as<float>() + t * out.stride + head * cache.head_dim;
        for (int64_t d = 0; d < cache.head_dim; ++d) result[d] = all.values[d] / all.sum;
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Slot {
    std::vector<float> key;
    std::vector<float> value;
  };

  // Online softmax (Milakov and Gimelshein 2018) over some of the keys.
  struct Part {
    explicit Part(int64_t head_dim) : values(static_cast<size_t>(head_dim), 0.0f) {}

    void AddKey(const float* query, const float* key, const float* value, float scale) {
      float score = 0;
      for (size_t d = 0; d < values.size(); ++d) score += query[d] * key[d];
      Part one(static_cast<int64_t>(values.size()));
      one.max = score * scale;
      one.sum = 1;
      std::copy_n(value, values.size(), one.values.begin());
      Fold(one);
    }
    void Fold(const Part& other) {
      if (other.sum == 0) return;
      const float new_max = sum == 0 ? other.max : std::max(max, other.max);
      const float keep = sum == 0 ? 0.0f : std::exp(max - new_max);
      const float add = std::exp(other.max - new_max);
      for (size_t d = 0; d < values.size(); ++d) {
        values[d] = values[d] * keep + other.values[d] * add;
      }
      sum = sum * keep + other.sum * add;
      max = new_max;
    }

    float max = 0;
    float sum = 0;
    std::vector<float> values;
  };

  // Of a position of the token's sequence.
  static Slot SlotAt(const TokenLayout& layout, const KvLayer& cache, int64_t token,
                     int64_t position, int64_t kv_head) {
    const int64_t block =
        layout
            .block_tables[layout.sequence_of[token] * layout.max_blocks + position / kBlockTokens];
    const int64_t head_elements = kBlockTokens * cache.head_dim;
    const int64_t keys = (block * 2 * cache.num_kv_heads + kv_head) * head_elements;
    const int64_t values = keys + cache.num_kv_heads * head_elements;
    const int64_t place = position % kBlockTokens;
    Slot slot;
    for (int64_t d = 0; d < cache.head_dim; ++d) {
      slot.key.push_back(ReadElement(cache.data, cache.dtype, keys + d * kBlockTokens + place));
      slot.value.push_back(
          ReadElement(cache.data, cache.dtype, values + place * cache.head_dim + d));
    }
    return slot;
  }
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CHUNK_SPLIT_OPS_H_
