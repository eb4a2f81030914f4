// Backends with the mistakes that the determinism promise rules out.
#ifndef TLM_TESTS_SUPPORT_FAULTY_OPS_H_
#define TLM_TESTS_SUPPORT_FAULTY_OPS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "model/ops/forwarding_ops.h"
#include "model/tensor/dtype.h"
#include "model/tensor/float_elements.h"

namespace tlm {

// The mistake that the promise rules out first: a matrix product of several rows is summed in two
// halves of k, which is the same formula in another order, chosen by the number of rows. Libraries
// tuned for speed do this. For the CPU's backend; products with an activation or a gate are
// unchanged.
class BatchDependentOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                      const Rows& out) override {
    if (x.rows == 1 || epilogue.activation.has_value()) return ops_.MatMul(x, w, epilogue, out);
    const std::vector<float> low = Half(x, 0, x.cols / 2);
    const std::vector<float> high = Half(x, x.cols / 2, x.cols);
    std::vector<float> sum(static_cast<size_t>(out.rows * out.cols));
    const auto rows = [](const std::vector<float>& values, int64_t cols) {
      return Rows{const_cast<float*>(values.data()), static_cast<int64_t>(values.size()) / cols,
                  cols, cols};
    };
    if (absl::Status status = ops_.MatMul(rows(low, x.cols), w, epilogue, out); !status.ok()) {
      return status;
    }
    if (absl::Status status = ops_.MatMul(rows(high, x.cols), w, {}, rows(sum, out.cols));
        !status.ok()) {
      return status;
    }
    for (int64_t i = 0; i < out.rows * out.cols; ++i) {
      out.as<float>()[i / out.cols * out.stride + i % out.cols] += sum[i];
    }
    return absl::OkStatus();
  }

 private:
  // Returns x with zeros in every column outside [begin, end).
  static std::vector<float> Half(const Rows& x, int64_t begin, int64_t end) {
    std::vector<float> half(static_cast<size_t>(x.rows * x.cols), 0.0f);
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t col = begin; col < end; ++col) {
        half[row * x.cols + col] = x.as<float>()[row * x.stride + col];
      }
    }
    return half;
  }
};

// Attention depends on where a prompt was cut into chunks: every token's keys are folded in two
// parts, the keys before its chunk and the keys of its chunk, like in implementations with one
// kernel for the cache and one for the new tokens. The formula is right; the border moves with the
// schedule. Reads the cache in the layout of the CPU's backend (model/ops/cpu/kernels/kernels.h).
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

  // Reads a position of the token's sequence.
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
      slot.key.push_back(FloatAt(cache.data, cache.dtype, keys + d * kBlockTokens + place));
      slot.value.push_back(FloatAt(cache.data, cache.dtype, values + place * cache.head_dim + d));
    }
    return slot;
  }
};

// Results of a wrong guess stay: the first write to a slot of the cache that a rejected draft token
// has written is lost, as if that token's keys and values were taken for the sampled token's.
// Writes to the cache in the layout of the CPU's backend (model/ops/cpu/kernels/kernels.h).
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

  // Returns all heads' keys and values at one slot of a layer.
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

  Batch batch_;  // the running batch
  std::set<Slot> stale_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_FAULTY_OPS_H_
