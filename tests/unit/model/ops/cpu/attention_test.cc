// Attention of the CPU backend on every instruction set of this machine, beyond what all backends
// promise (../attention_test.cc): bits that do not depend on threads, on how the work is cut or on
// the contents of unused slots.
#include "model/ops/cpu/kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cpu/packed_matrix.h"
#include "model/tensor/fp8.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct AttentionShape {
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;
  int64_t cols() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t q_cols() const { return heads * head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

// [positions, cols] of queries, keys and values.
struct Sequence {
  std::vector<float> qkv;
  int64_t positions;
};

// Tokens [begin, end) of a sequence.
struct Part {
  int64_t sequence = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class CpuAttentionTest : public ::testing::TestWithParam<std::tuple<Isa, DType, DType>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  DType kv_type() const { return std::get<1>(GetParam()); }
  DType rows_type() const { return std::get<2>(GetParam()); }
  bool RoundsWeights(int64_t head_dim) const {
    return HasBf16Products(isa()) && InPairs(StorageOf(kv_type()), head_dim);
  }

  Sequence RandomSequence(const AttentionShape& shape, int64_t positions, uint64_t seed) const {
    std::vector<float> qkv = Rounded(RandomFloats(positions * shape.cols(), seed), rows_type());
    // Values that stay what they are when they are stored: the first time, the largest of a row may
    // become a power of two, by which 8 bits are scaled.
    for (int time = 0; time < 2; ++time) qkv = Stored(std::move(qkv), shape.head_dim, kv_type());
    return {std::move(qkv), positions};
  }

  // Blocks of the sequences lie mixed in the cache, whose memory starts as NaN or what poison_ is.
  void Start(const AttentionShape& shape, const std::vector<Sequence>& sequences, int threads) {
    shape_ = shape;
    sequences_ = sequences;
    auto ops = CpuOps::Create(threads, isa());
    ASSERT_THAT(ops, IsOk());
    ops_ = *std::move(ops);
    ASSERT_THAT(
        ops_->Reserve(
            {.max_tokens = 4096, .max_sequences = 16, .max_logits_rows = 1, .max_context = 4096},
            {.vocab_size = 1,
             .num_heads = shape.heads,
             .num_kv_heads = shape.kv_heads,
             .head_dim = shape.head_dim,
             .gated_outputs = 0,
             .inputs = 64},
            DType::kF32),
        IsOk());
    blocks_.assign(sequences.size(), {});
    int32_t blocks = 0;
    for (bool more = true; more;) {
      more = false;
      for (size_t i = sequences.size(); i-- > 0;) {
        if (static_cast<int64_t>(blocks_[i].size()) * kBlockTokens >= sequences[i].positions)
          continue;
        blocks_[i].push_back(blocks++);
        more = true;
      }
    }
    cache_ = {.dtype = cache_type_.value_or(kv_type()),
              .num_blocks = blocks,
              .num_kv_heads = shape.kv_heads,
              .head_dim = shape.head_dim};
    memory_.assign(static_cast<size_t>(blocks) * cache_.block_bytes(), poison_);
    cache_.data = memory_.data();
  }

  // The outputs of a batch, end to end. Its keys and values are stored first.
  std::vector<float> Run(const std::vector<Part>& parts) {
    std::vector<Piece> pieces;
    std::vector<float> in;
    for (const Part& part : parts) {
      const auto sequence = static_cast<size_t>(part.sequence);
      pieces.push_back({part.begin, part.end - part.begin, blocks_[sequence]});
      const auto from = sequences_[sequence].qkv.begin();
      in.insert(in.end(), from + part.begin * shape_.cols(), from + part.end * shape_.cols());
    }
    const int64_t tokens = static_cast<int64_t>(in.size()) / shape_.cols();
    std::vector<uint16_t> halves;
    for (const float value : in) halves.push_back(FloatToBf16(value));
    std::vector<float> out(tokens * shape_.q_cols(), kNaN);
    const bool wide = rows_type() == DType::kF32;
    const Rows qkv{wide ? static_cast<void*>(in.data()) : halves.data(), tokens, shape_.cols(),
                   shape_.cols(), rows_type()};
    const Rows results{out.data(), tokens, shape_.q_cols(), shape_.q_cols(), rows_type()};
    const Batch batch = BatchOf(pieces);
    const auto on_device = ops_->BeginBatch(batch);
    EXPECT_THAT(on_device, IsOk());
    EXPECT_THAT(ops_->PrepareAttention(qkv, {}, on_device->layout, cache_), IsOk());
    EXPECT_THAT(ops_->Attention(qkv.Columns(0, shape_.q_cols()), shape_.scale(), shape_.window,
                                on_device->layout, cache_, results),
                IsOk());
    if (wide) return out;
    std::vector<float> widened;
    for (size_t i = 0; i < out.size(); ++i) {
      widened.push_back(Bf16ToFloat(results.as<uint16_t>()[i]));
    }
    return widened;
  }

  // One sequence in chunks of so many tokens, whatever else the arguments are.
  std::vector<float> RunInChunks(const AttentionShape& shape, const Sequence& sequence,
                                 int64_t chunk, int threads) {
    Start(shape, {sequence}, threads);
    std::vector<float> out;
    for (int64_t begin = 0; begin < sequence.positions; begin += chunk) {
      const std::vector<float> part =
          Run({{0, begin, std::min(sequence.positions, begin + chunk)}});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  void ExpectSoftmax(const AttentionShape& shape, const Sequence& sequence,
                     const std::vector<float>& actual);

  std::optional<DType> cache_type_;  // in place of kv_type()
  uint8_t poison_ = 0xff;
  AttentionShape shape_{};
  std::vector<Sequence> sequences_;
  std::unique_ptr<CpuOps> ops_;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<uint8_t> memory_;
  KvLayer cache_;
};

// Against double precision.
void CpuAttentionTest::ExpectSoftmax(const AttentionShape& shape, const Sequence& sequence,
                                     const std::vector<float>& actual) {
  const bool rounds = RoundsWeights(shape.head_dim);
  const auto element = [&](int64_t position, int64_t head, int64_t d) {
    return static_cast<double>(sequence.qkv[position * shape.cols() + head * shape.head_dim + d]);
  };
  for (int64_t i = 0; i < sequence.positions * shape.heads; ++i) {
    const int64_t position = i / shape.heads;
    const int64_t head = i % shape.heads;
    const int64_t key_head = shape.heads + head / (shape.heads / shape.kv_heads);
    const int64_t first = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;
    std::vector<double> weights;
    double largest = 0.0;
    for (int64_t j = first; j <= position; ++j) {
      double dot = 0.0;
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        double q = element(position, head, d);
        if (rounds) q = Rounded(static_cast<float>(q), DType::kBF16);
        dot += q * element(j, key_head, d);
      }
      weights.push_back(dot * static_cast<double>(shape.scale()));
      largest = std::max(largest, std::abs(weights.back()));
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      double expected = 0.0, magnitude = 0.0;
      for (size_t j = 0; j < weights.size(); ++j) {
        const double term = weights[j] / sum *
                            element(first + static_cast<int64_t>(j), key_head + shape.kv_heads, d);
        expected += term;
        magnitude += std::abs(term);
      }
      const double error =
          2e-6 + magnitude * (3e-6 * (1.0 + largest) + (rounds ? Roundoff(DType::kBF16) : 0.0)) +
          RoundingError(expected, rows_type());
      ASSERT_NEAR(actual[i * shape.head_dim + d], expected, error)
          << "head_dim " << shape.head_dim << " position " << position << " head " << head
          << " element " << d;
    }
  }
}

TEST_P(CpuAttentionTest, EqualsSoftmaxForHeadsOfAnySize) {
  int64_t heads = 0;
  for (const int64_t head_dim :
       {256, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 34, 63, 64, 80, 100, 128}) {
    heads = heads % 9 + 1;  // groups of 1 to 9 queries
    const AttentionShape shape{heads, 1, head_dim, heads % 2 == 0 ? 0 : 50};
    const Sequence sequence = RandomSequence(shape, 70, 1);
    ExpectSoftmax(shape, sequence, RunInChunks(shape, sequence, 70, 2));
    if (HasFatalFailure()) return;
  }
}

// Tiles of the one token after 599 are computed by several threads: with 48 heads in several waves,
// since there is room for the records of a few tiles only.
TEST_P(CpuAttentionTest, ThreadsAndChunksAreInvisible) {
  for (const AttentionShape& shape : {AttentionShape{48, 1, 16}, AttentionShape{2, 1, 64, 500},
                                      AttentionShape{9, 1, 7}, AttentionShape{4, 2, 20}}) {
    const Sequence sequence = RandomSequence(shape, 600, 2);
    const std::vector<uint32_t> whole = BitsOf(RunInChunks(shape, sequence, 600, 1));
    for (const auto& [chunk, threads] :
         {std::pair<int64_t, int>{599, 2}, {599, 5}, {97, 3}, {1, 2}}) {
      if (chunk == 1 && shape.window == 0) continue;  // one shape is enough for so many steps
      ASSERT_EQ(BitsOf(RunInChunks(shape, sequence, chunk, threads)), whole)
          << "head_dim " << shape.head_dim << ", chunks of " << chunk << ", " << threads
          << " threads";
    }
  }
}

TEST_P(CpuAttentionTest, MatesAreInvisible) {
  const AttentionShape shape{4, 1, 48};
  std::vector<Sequence> sequences;
  std::vector<std::vector<float>> alone;
  for (const int64_t positions : {900, 3, 65, 200, 1}) {
    sequences.push_back(RandomSequence(shape, positions, static_cast<uint64_t>(positions)));
    alone.push_back(RunInChunks(shape, sequences.back(), positions, 1));
  }
  Start(shape, sequences, 4);
  // All but the last token of each; then one of each, the long one's work being split.
  std::vector<Part> first, second;
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t positions = sequences[i].positions;
    if (positions > 1) first.push_back({i, 0, positions - 1});
    second.push_back({i, positions - 1, positions});
  }
  for (const std::vector<Part>& parts : {first, second}) {
    const std::vector<float> out = Run(parts);
    int64_t row = 0;
    for (const Part& part : parts) {
      const std::vector<float>& of = alone[part.sequence];
      const std::vector<float> expected(of.begin() + part.begin * shape.q_cols(),
                                        of.begin() + part.end * shape.q_cols());
      const std::vector<float> actual(out.begin() + row * shape.q_cols(),
                                      out.begin() + (row + part.end - part.begin) * shape.q_cols());
      ASSERT_EQ(BitsOf(actual), BitsOf(expected)) << "sequence " << part.sequence;
      row += part.end - part.begin;
    }
  }
}

// A later token of the same tile is in the cache when the earlier ones are computed.
TEST_P(CpuAttentionTest, LaterKeysAndValuesDoNotReachEarlierTokens) {
  for (const int64_t head_dim : {9, 16, 32}) {
    for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
      const AttentionShape shape{2, 1, head_dim, 40};
      const Sequence clean = RandomSequence(shape, 120, 4);
      Sequence poisoned = clean;
      for (const int64_t position : {39, 90}) {
        for (int64_t i = shape.q_cols(); i < shape.cols(); ++i) {
          poisoned.qkv[position * shape.cols() + i] = bad;
        }
      }
      const std::vector<uint32_t> expected = BitsOf(RunInChunks(shape, clean, 120, 2));
      const std::vector<float> actual = RunInChunks(shape, poisoned, 120, 2);
      const std::vector<uint32_t> bits = BitsOf(actual);
      for (int64_t i = 0; i < 120 * shape.q_cols(); ++i) {
        const int64_t position = i / shape.q_cols();
        const auto at = static_cast<size_t>(i);
        if ((position >= 39 && position < 79) || position >= 90) {
          ASSERT_FALSE(std::isfinite(actual[at])) << position;
        } else {
          ASSERT_EQ(bits[at], expected[at]) << "head_dim " << head_dim << " position " << position;
        }
      }
    }
  }
}

TEST_P(CpuAttentionTest, ScoresOfAnySizeAreWeighed) {
  const AttentionShape shape{1, 1, 16};
  Sequence sequence = RandomSequence(shape, 200, 5);
  for (size_t i = 0; i < sequence.qkv.size(); ++i) {
    if (i % 48 < 16) sequence.qkv[i] *= i / 48 % 2 == 0 ? 4096.0f : 0.0f;
  }
  ExpectSoftmax(shape, sequence, RunInChunks(shape, sequence, 200, 2));
  if (HasFatalFailure()) return;
  // Scores that overflow are seen in the result, of their own token alone.
  for (const float sign : {1.0f, -1.0f}) {
    Sequence overflows = sequence;
    for (int64_t d = 0; d < 16; ++d) {
      overflows.qkv[150 * 48 + d] = sign * 3e38f;
      overflows.qkv[150 * 48 + 16 + d] = 300.0f;
    }
    const std::vector<float> out = RunInChunks(shape, overflows, 200, 2);
    EXPECT_FALSE(std::isfinite(out[150 * 16]));
    EXPECT_TRUE(std::isfinite(out[149 * 16]));
    EXPECT_TRUE(std::isfinite(out[199 * 16]));
  }
}

TEST_P(CpuAttentionTest, KeysAndValuesLieWhereTheLayoutSays) {
  for (const int64_t head_dim : {6, 7, 64, 70}) {
    const AttentionShape shape{2, 2, head_dim};
    const Sequence sequence = RandomSequence(shape, 140, 6);
    RunInChunks(shape, sequence, 140, 2);
    const std::vector<uint8_t> whole = memory_;
    for (const int64_t chunk : {1, 37}) {
      RunInChunks(shape, sequence, chunk, 2);
      ASSERT_EQ(memory_, whole) << "chunks of " << chunk;
    }
    const bool in_pairs = InPairs(StorageOf(kv_type()), head_dim);
    const auto stored = [&](const uint8_t* rows, int64_t slot, int64_t index) {
      if (kv_type() == DType::kF32) return reinterpret_cast<const float*>(rows)[index];
      if (kv_type() == DType::kF8E4M3) {
        return Fp8Value(rows[index]) * Fp8Scale(rows[64 * head_dim + slot]);
      }
      const uint16_t half = reinterpret_cast<const uint16_t*>(rows)[index];
      return kv_type() == DType::kBF16 ? Bf16ToFloat(half) : F16ToFloat(half);
    };
    for (int64_t i = 0; i < 140 * 2 * head_dim; ++i) {
      const int64_t position = i / (2 * head_dim);
      const int64_t head = i / head_dim % 2;
      const int64_t d = i % head_dim;
      const int64_t block = blocks_[0][position / 64];
      const size_t head_bytes = cache_.head_bytes();
      const uint8_t* const keys = whole.data() + static_cast<size_t>(block * 4 + head) * head_bytes;
      const int64_t slot = position % 64;
      const float* const from =
          sequence.qkv.data() + position * shape.cols() + shape.q_cols() + head * head_dim + d;
      ASSERT_EQ(stored(keys, slot, KeyIndex(in_pairs, head_dim, slot, d)), from[0]);
      ASSERT_EQ(stored(keys + 2 * head_bytes, slot, ValueIndex(in_pairs, head_dim, slot, d)),
                from[2 * head_dim]);
    }
  }
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<Isa, DType, DType>>& info) {
  const auto& [isa, kv, rows] = info.param;
  return std::string(IsaName(isa)) + "_" + std::string(DTypeName(kv)) + "_rows_" +
         std::string(DTypeName(rows));
}

INSTANTIATE_TEST_SUITE_P(Isas, CpuAttentionTest,
                         ::testing::Combine(::testing::ValuesIn(AvailableIsas()),
                                            ::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16, DType::kF8E4M3),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         CaseName);

class Fp8AttentionTest : public CpuAttentionTest {
 protected:
  // Rows of all sizes: zeros, below what a scale reaches, beyond where elements saturate.
  Sequence RowsOfAllSizes(const AttentionShape& shape, int64_t positions) const {
    constexpr float kSizes[] = {1.0f, 0.0f, 0x1p-20f, 0x1p-9f, 300.0f, 0x1p-140f, 20000.0f};
    std::vector<float> qkv = RandomFloats(positions * shape.cols(), 7);
    for (size_t i = 0; i < qkv.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / shape.head_dim;
      const bool is_query = row % (shape.heads + 2 * shape.kv_heads) < shape.heads;
      if (!is_query) qkv[i] *= kSizes[static_cast<size_t>(row) % std::size(kSizes)];
    }
    return {Rounded(std::move(qkv), rows_type()), positions};
  }
};

// Whatever is in slots that nobody sees.
TEST_P(Fp8AttentionTest, HasTheBitsOfACacheThatHoldsTheValuesAsBfloat16) {
  int64_t heads = 0;
  for (const int64_t head_dim : {2, 3, 8, 15, 16, 20, 32, 34, 63, 64, 80, 96, 100, 128, 256}) {
    heads = heads % 9 + 1;
    const AttentionShape shape{heads, 1, head_dim, heads % 2 == 0 ? 0 : 50};
    const Sequence sequence = RowsOfAllSizes(shape, 135);
    Sequence stored{Stored(sequence.qkv, head_dim, DType::kF8E4M3), sequence.positions};
    for (int64_t i = 0; i < sequence.positions; ++i) {
      std::copy_n(sequence.qkv.begin() + i * shape.cols(), shape.q_cols(),
                  stored.qkv.begin() + i * shape.cols());
    }
    cache_type_ = DType::kBF16;
    const std::vector<uint32_t> expected = BitsOf(RunInChunks(shape, stored, 135, 2));
    cache_type_ = std::nullopt;
    for (const int64_t chunk : {1, 37, 135}) {
      poison_ = chunk == 37 ? 0xee : 0xff;
      ASSERT_EQ(BitsOf(RunInChunks(shape, sequence, chunk, 2)), expected)
          << "head_dim " << head_dim << ", chunks of " << chunk;
    }
  }
}

// As the format's header says.
TEST_P(Fp8AttentionTest, StoresTheRowsOfTheFormat) {
  for (const int64_t head_dim : {7, 64, 70}) {
    const AttentionShape shape{1, 1, head_dim};
    Sequence sequence = RowsOfAllSizes(shape, 64);
    sequence.qkv[5 * shape.cols() + head_dim] = kNaN;
    sequence.qkv[6 * shape.cols() + head_dim + 1] = -INFINITY;
    RunInChunks(shape, sequence, 64, 2);
    for (const int64_t part : {0, 1}) {
      const uint8_t* const rows = memory_.data() + static_cast<size_t>(part) * cache_.head_bytes();
      for (int64_t slot = 0; slot < 64; ++slot) {
        const float* const row = sequence.qkv.data() + slot * shape.cols() + (part + 1) * head_dim;
        uint32_t largest = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
          largest = std::max(largest, Fp8BitsOf(row[d]) & 0x7fffffffu);
        }
        const uint8_t scale = Fp8ScaleOf(largest);
        ASSERT_EQ(rows[64 * head_dim + slot], scale) << slot;
        for (int64_t d = 0; d < head_dim; ++d) {
          const auto index_of = part == 0 ? KeyIndex : ValueIndex;
          const uint8_t code = rows[index_of(head_dim % 2 == 0, head_dim, slot, d)];
          ASSERT_EQ(code & 0x7f, Fp8Of(row[d] * Fp8InverseScale(scale)) & 0x7f) << row[d];
          if ((code & 0x7f) != kFp8NaN) {
            ASSERT_EQ(code >> 7, std::signbit(row[d]));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Fp8AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(AvailableIsas()),
                                            ::testing::Values(DType::kF8E4M3),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         CaseName);

}  // namespace
}  // namespace tlm
