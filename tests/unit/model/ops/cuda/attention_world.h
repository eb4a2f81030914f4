// Sequences of random queries, keys and values, run through attention's planner and kernels in
// batches of any heads.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_ATTENTION_WORLD_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_ATTENTION_WORLD_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/batch/attention_plan.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/tensor/fp8.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/device_memory.h"

namespace tlm {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Heads {
  DType dtype;
  int64_t query_heads, kv_heads, head_dim;
  int64_t window = 0;
  bool fp8 = false;  // the cache

  int64_t q_cols() const { return query_heads * head_dim; }
  std::string name() const {
    return std::string(DTypeName(dtype)) + " " + std::to_string(query_heads) + "/" +
           std::to_string(kv_heads) + " heads of " + std::to_string(head_dim) + ", window " +
           std::to_string(window) + (fp8 ? ", fp8" : "");
  }
};

inline std::vector<uint8_t> Encode(const std::vector<float>& values, DType dtype) {
  std::vector<uint8_t> bytes(values.size() * DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const uint16_t half = dtype == DType::kBF16 ? FloatToBf16(values[i]) : FloatToF16(values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

inline std::vector<float> Decode(const std::vector<uint8_t>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / DTypeBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&values[i], &bytes[4 * i], 4);
    } else {
      uint16_t half = 0;
      std::memcpy(&half, &bytes[2 * i], 2);
      values[i] = dtype == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
    }
  }
  return values;
}

// Which element byte i of a row in 8 bits is: the halves of each whole 16 elements alternate.
inline int64_t Fp8ElementAt(int64_t head_dim, int64_t i) {
  if (i >= head_dim / 16 * 16) return i;
  return i / 16 * 16 + i % 16 / 2 + i % 2 * 8;
}
// Rows of a cache in 8 bits, each followed by its scale.
inline std::vector<uint8_t> EncodeFp8(const std::vector<float>& values, int64_t head_dim) {
  std::vector<uint8_t> bytes;
  for (auto row = values.begin(); row != values.end(); row += head_dim) {
    uint32_t largest = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      largest = std::max(largest, Fp8BitsOf(row[d]) & 0x7fffffffu);
    }
    const uint8_t scale = Fp8ScaleOf(largest);
    for (int64_t i = 0; i < head_dim; ++i) {
      bytes.push_back(Fp8Of(row[Fp8ElementAt(head_dim, i)] * Fp8InverseScale(scale)));
    }
    bytes.push_back(scale);
  }
  return bytes;
}
// The values that a cache in 8 bits holds of them.
inline std::vector<float> ThroughFp8(std::vector<float> values, int64_t head_dim) {
  const std::vector<uint8_t> bytes = EncodeFp8(values, head_dim);
  const auto rows = static_cast<int64_t>(values.size()) / head_dim;
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* const at = &bytes[row * (head_dim + 1)];
    for (int64_t i = 0; i < head_dim; ++i) {
      values[row * head_dim + Fp8ElementAt(head_dim, i)] = Fp8Value(at[i]) * Fp8Scale(at[head_dim]);
    }
  }
  return values;
}

// A sequence's queries, keys and values for all its positions, as stored; and its blocks.
struct Sequence {
  Sequence(const Heads& heads, int64_t length, uint64_t seed, std::vector<int32_t> block_ids)
      : tokens(length), blocks(std::move(block_ids)) {
    std::mt19937_64 random(seed);
    const auto random_values = [&](int64_t cols) {
      std::normal_distribution<float> normal;
      std::vector<float> values(length * cols);
      for (float& value : values) value = normal(random);
      return Decode(Encode(values, heads.dtype), heads.dtype);
    };
    q = random_values(heads.q_cols());
    k = random_values(heads.kv_heads * heads.head_dim);
    v = random_values(heads.kv_heads * heads.head_dim);
  }
  int64_t tokens;
  std::vector<int32_t> blocks;
  std::vector<float> q, k, v;
};

// As many blocks as so many tokens take, in any order and with gaps.
inline std::vector<int32_t> ScatteredBlocks(int64_t tokens, uint64_t seed) {
  const auto needed = static_cast<size_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  std::vector<int32_t> blocks(needed + 5);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(blocks.begin(), blocks.end(), random);
  blocks.resize(needed);
  return blocks;
}

// Positions [begin, end) of a sequence in one batch.
struct Part {
  int sequence;
  int64_t begin;
  int64_t end;
};

// How the work is dealt.
struct Deal {
  int64_t unit_tiles = 0;
  int64_t grid_blocks = 6;
  bool plan_with_window = true;
  int64_t max_rows = 0;  // of query tiles; 0: the kernel's own
  int padding = 0;
  int launches = 1;  // one after the other, as early as they may begin; each does the same
};

// Runs them on the device. The cache holds every position up to what a batch computes, and NaN
// elsewhere.
class World {
 public:
  World(const Heads& heads, std::vector<Sequence> sequences)
      : heads_(heads), sequences_(std::move(sequences)) {
    for (const Sequence& sequence : sequences_) {
      outputs_.emplace_back(sequence.q.size(), kNan);
      table_width_ = std::max(table_width_, std::ssize(sequence.blocks));
      for (const int64_t block : sequence.blocks) {
        cache_blocks_ = std::max(cache_blocks_, block + 1);
      }
    }
  }
  Sequence& sequence(int i) { return sequences_[i]; }
  const std::vector<float>& output(int i) const { return outputs_[i]; }

  // Runs batches one after the other; what they do not write of the outputs is NaN.
  void Run(const std::vector<std::vector<Part>>& batches, const Deal& deal) {
    for (std::vector<float>& output : outputs_) std::fill(output.begin(), output.end(), kNan);
    stored_.clear();
    for (const Sequence& sequence : sequences_) {
      stored_.push_back({Stored(sequence.k), Stored(sequence.v)});
    }
    const bool mma = heads_.dtype != DType::kF32 && HasMmaAttention(heads_.head_dim);
    ASSERT_EQ(LoadAttention(heads_.dtype, heads_.head_dim, heads_.fp8, mma), cudaSuccess);
    AttentionGrid grid{
        mma, deal.grid_blocks,
        mma ? MmaAttentionRows(heads_.head_dim) : SimtAttentionRows(heads_.head_dim)};
    if (deal.max_rows > 0) grid.max_rows = std::min(grid.max_rows, deal.max_rows);
    const int64_t max_context = table_width_ * kBlockTokens;
    AttentionPlanner planner({.max_tokens = max_context,
                              .max_sequences = static_cast<int64_t>(sequences_.size()),
                              .max_logits_rows = 1,
                              .max_context = max_context},
                             {0, heads_.query_heads, heads_.kv_heads, heads_.head_dim}, grid,
                             AttentionPlanner::Options{.unit_tiles = deal.unit_tiles});
    DeviceMemory scratch(planner.scratch_bytes());
    scratch.Write(std::vector<uint8_t>(planner.ticket_bytes()).data(), planner.ticket_bytes());
    for (const std::vector<Part>& parts : batches) {
      RunBatch(parts, deal, planner, scratch);
    }
    // Ready for the next launch.
    EXPECT_EQ(scratch.Read(planner.ticket_bytes()), std::vector<uint8_t>(planner.ticket_bytes()));
  }

 private:
  // Keys and values of a sequence as the cache has them.
  struct StoredSequence {
    std::vector<uint8_t> k, v;
  };
  std::vector<uint8_t> Stored(const std::vector<float>& values) const {
    return heads_.fp8 ? EncodeFp8(values, heads_.head_dim) : Encode(values, heads_.dtype);
  }

  // Keys and values of everything up to the parts' ends, as stored; NaN elsewhere.
  std::vector<uint8_t> Cache(const std::vector<Part>& parts) const {
    const int64_t row =
        heads_.head_dim * static_cast<int64_t>(heads_.fp8 ? 1 : DTypeBytes(heads_.dtype));
    const int64_t scale = heads_.fp8 ? 1 : 0;  // behind a page's rows
    const int64_t page = kBlockTokens * (row + scale);
    std::vector<uint8_t> cache(cache_blocks_ * 2 * heads_.kv_heads * page, 0xff);
    // A row that was never written may have any byte for a scale.
    for (size_t at = 0; scale > 0 && at < cache.size(); at += static_cast<size_t>(page)) {
      for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
        cache[at + static_cast<size_t>(kBlockTokens * row + slot)] =
            static_cast<uint8_t>(slot * 85 + 7);
      }
    }
    const auto store = [&](const std::vector<uint8_t>& stored, int64_t from, int64_t to_page,
                           int64_t slot) {
      const auto begin = stored.begin() + from * (row + scale);
      const auto to = cache.begin() + to_page * page;
      std::copy_n(begin, row, to + slot * row);
      std::copy_n(begin + row, scale, to + kBlockTokens * row + slot);
    };
    for (const Part& part : parts) {
      const Sequence& sequence = sequences_[part.sequence];
      const StoredSequence& stored = stored_[part.sequence];
      for (int64_t t = 0; t < part.end; ++t) {
        const int64_t block = sequence.blocks[t / kBlockTokens];
        for (int64_t h = 0; h < heads_.kv_heads; ++h) {
          const int64_t from = t * heads_.kv_heads + h;
          const int64_t to = block * 2 * heads_.kv_heads + h;
          store(stored.k, from, to, t % kBlockTokens);
          store(stored.v, from, to + heads_.kv_heads, t % kBlockTokens);
        }
      }
    }
    return cache;
  }

  void RunBatch(const std::vector<Part>& parts, const Deal& deal, AttentionPlanner& planner,
                const DeviceMemory& scratch_memory) {
    const int64_t cols = heads_.q_cols();
    const int64_t stride = cols + 16;  // as where queries are columns of a wider row
    Batch batch;
    batch.max_blocks = table_width_;
    std::vector<float> q;
    for (const Part& part : parts) {
      const Sequence& sequence = sequences_[part.sequence];
      for (int64_t t = part.begin; t < part.end; ++t) {
        batch.token_ids.push_back(0);
        batch.positions.push_back(static_cast<int32_t>(t));
        batch.sequence_of.push_back(static_cast<int32_t>(batch.sequences));
        q.insert(q.end(), sequence.q.begin() + t * cols, sequence.q.begin() + (t + 1) * cols);
        q.insert(q.end(), static_cast<size_t>(stride - cols), kNan);
      }
      std::vector<int32_t> table(sequence.blocks);
      table.resize(table_width_, 0);
      batch.block_tables.insert(batch.block_tables.end(), table.begin(), table.end());
      ++batch.sequences;
    }
    for (int i = 0; i < deal.padding; ++i) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(-1);
      batch.sequence_of.push_back(static_cast<int32_t>(batch.sequences - 1));
      q.insert(q.end(), static_cast<size_t>(stride), kNan);
    }
    std::vector<AttentionUnit> work(planner.work_bytes() / 64 + 1);
    const auto used =
        planner.Plan(batch, deal.plan_with_window ? heads_.window : 0,
                     {reinterpret_cast<std::byte*>(work.data()), planner.work_bytes()});
    ASSERT_TRUE(used.ok()) << used.status();
    DeviceMemory on_work(*used);
    on_work.Write(work.data(), *used);
    const DeviceMemory on_q(Encode(q, heads_.dtype));
    const DeviceMemory on_cache(Cache(parts));
    DeviceMemory on_tables(batch.block_tables.size() * sizeof(int32_t));
    on_tables.Write(batch.block_tables.data(), batch.block_tables.size() * sizeof(int32_t));
    const size_t out_bytes = static_cast<size_t>(batch.tokens() * cols) * DTypeBytes(heads_.dtype);
    const DeviceMemory on_out(
        Encode(std::vector<float>(batch.tokens() * cols, kNan), heads_.dtype));
    const AttentionScratch scratch = planner.Scratch(scratch_memory.data());
    const AttentionArgs args{.q = on_q.data(),
                             .q_stride = stride,
                             .out = on_out.data(),
                             .out_stride = cols,
                             .cache = on_cache.data(),
                             .block_tables = on_tables.as<int32_t>(),
                             .num_kv_heads = static_cast<int32_t>(heads_.kv_heads),
                             .group = static_cast<int32_t>(heads_.query_heads / heads_.kv_heads),
                             .head_dim = static_cast<int32_t>(heads_.head_dim),
                             .window = heads_.window,
                             .scale = 1.0f / std::sqrt(static_cast<float>(heads_.head_dim)),
                             .blocks = static_cast<int32_t>(planner.grid().blocks),
                             .work = on_work.data(),
                             .tickets = scratch.tickets,
                             .partial_stats = scratch.partial_stats,
                             .partial_values = scratch.partial_values,
                             .fp8 = heads_.fp8};
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    SetKernelOverlap(deal.launches > 1 && DeviceOverlapsKernels());
    for (int i = 0; i < deal.launches; ++i) {
      ASSERT_EQ(LaunchAttention(args, heads_.dtype, planner.grid().mma, stream), cudaSuccess);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    const std::vector<float> out = Decode(on_out.Read(out_bytes), heads_.dtype);
    int64_t token = 0;
    for (const Part& part : parts) {
      for (int64_t t = part.begin; t < part.end; ++t, ++token) {
        std::copy_n(out.begin() + token * cols, cols, outputs_[part.sequence].begin() + t * cols);
      }
    }
    for (; token < batch.tokens(); ++token) {
      EXPECT_TRUE(std::isnan(out[token * cols])) << "padding was written";
    }
  }

  const Heads heads_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<float>> outputs_;
  int64_t table_width_ = 4;             // blocks a sequence may have
  int64_t cache_blocks_ = 12;           // more than some sequences have
  std::vector<StoredSequence> stored_;  // of this run
};

// Bits, so that NaN equals itself.
inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_ATTENTION_WORLD_H_
