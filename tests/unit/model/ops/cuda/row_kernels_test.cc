// What the op tests cannot see of the kernels that work on rows: how the cache is laid out,
// padding, and that they wait for each other.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/kernels/add_norm.h"
#include "model/ops/cuda/kernels/attention/prepare_attention.h"
#include "model/ops/cuda/kernels/embed.h"
#include "model/ops/cuda/kernels/gemm/dequantise.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/tensor/fp8.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/device_memory.h"

namespace tlm {
namespace {

std::vector<uint16_t> Bf16Range(int count) {
  std::vector<uint16_t> values;
  for (int i = 0; i < count; ++i) values.push_back(FloatToBf16(static_cast<float>(i + 1)));
  return values;
}

struct CacheCase {
  int32_t heads, kv_heads, head_dim;
};

TEST(PrepareAttentionKernelTest, KeysAndValuesLieTokenByTokenInTheirBlocks) {
  for (const CacheCase& c : {CacheCase{2, 2, 8}, {1, 1, 7}, {3, 1, 260}}) {
    const int64_t cols = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    // The second token is padding; the others are of sequences 1 and 0.
    const std::vector<int32_t> positions = {70, -1, 3}, tables = {2, 2, 0};
    const std::vector<int32_t> blocks = {4, 0, 2, 1};
    const std::vector<uint16_t> rows = Bf16Range(static_cast<int>(3 * cols));
    const size_t page = size_t{64} * static_cast<size_t>(c.head_dim);
    const size_t cache_elements = 5 * 2 * static_cast<size_t>(c.kv_heads) * page;
    const OnDevice<uint16_t> qkv(rows), cache(std::vector<uint16_t>(cache_elements, 0xffff));
    const OnDevice<int32_t> on_positions(positions), on_tables(tables), on_blocks(blocks);
    const PrepareAttentionArgs args{.qkv = qkv.data(),
                                    .qkv_stride = cols,
                                    .num_heads = c.heads,
                                    .num_kv_heads = c.kv_heads,
                                    .head_dim = c.head_dim,
                                    .positions = on_positions.data(),
                                    .table_of = on_tables.data(),
                                    .block_tables = on_blocks.data(),
                                    .cache = cache.data(),
                                    .tokens = 3};
    ASSERT_EQ(LaunchPrepareAttention(args, DType::kBF16, nullptr), cudaSuccess);
    EXPECT_EQ(qkv.Read(), rows) << "nothing is to be done to queries";

    std::vector<uint16_t> expected(cache_elements, 0xffff);
    const struct { size_t token, block, slot; } places[] = {{0, 1, 6}, {2, 4, 3}};
    for (const auto& place : places) {
      for (size_t kv = 0; kv < 2; ++kv) {
        for (size_t head = 0; head < static_cast<size_t>(c.kv_heads); ++head) {
          const size_t column =
              (static_cast<size_t>(c.heads) + kv * static_cast<size_t>(c.kv_heads) + head) *
              static_cast<size_t>(c.head_dim);
          const size_t to =
              ((place.block * 2 + kv) * static_cast<size_t>(c.kv_heads) + head) * page +
              place.slot * static_cast<size_t>(c.head_dim);
          std::memcpy(&expected[to], &rows[place.token * static_cast<size_t>(cols) + column],
                      static_cast<size_t>(c.head_dim) * sizeof(uint16_t));
        }
      }
    }
    EXPECT_EQ(cache.Read(), expected) << "head_dim " << c.head_dim;
  }
}

// What the cache in 8 bits has of a row: the halves of each whole 16 alternate, the scale is last.
std::vector<uint8_t> Fp8Row(const uint16_t* row, size_t head_dim) {
  uint32_t largest = 0;
  for (size_t d = 0; d < head_dim; ++d) {
    largest = std::max(largest, Fp8BitsOf(Bf16ToFloat(row[d])) & 0x7fffffffu);
  }
  const uint8_t scale = Fp8ScaleOf(largest);
  std::vector<uint8_t> bytes(head_dim + 1, scale);
  for (size_t i = 0; i < head_dim; ++i) {
    const bool whole = i < head_dim / 16 * 16;
    const size_t d = whole ? i / 16 * 16 + i % 16 / 2 + i % 2 * 8 : i;
    bytes[i] = Fp8Of(Bf16ToFloat(row[d]) * Fp8InverseScale(scale));
  }
  return bytes;
}

TEST(PrepareAttentionKernelTest, RowsOfEightBitsAreThoseOfTheFormat) {
  // Of each of these a head: all of it, or one element among ordinary ones.
  const float magnitudes[] = {0.0f,    -0.0f,    0x1p-133f,     0x1p-30f,  0x1.8p-24f, 0x1p-8f,
                              0x1p-6f, 0.7f,     447.0f,        0x1p14f,   57344.0f,   0x1.ap15f,
                              0x1p16f, 0x1p100f, std::nanf(""), HUGE_VALF, -HUGE_VALF};
  for (const int32_t head_dim : {1, 7, 8, 64, 128, 260, 300}) {
    const auto dim = static_cast<size_t>(head_dim);
    std::mt19937_64 random(static_cast<uint64_t>(head_dim));
    std::normal_distribution<float> normal;
    std::vector<uint16_t> row(dim, 0);  // the query's
    for (const float magnitude : magnitudes) {
      for (size_t d = 0; d < dim; ++d) row.push_back(FloatToBf16(magnitude * normal(random)));
      for (size_t d = 0; d < dim; ++d) row.push_back(FloatToBf16(normal(random)));
      row[row.size() - 1 - dim / 3] = FloatToBf16(magnitude);
    }
    const size_t kv_heads = std::size(magnitudes);  // the first half of the rows are keys
    const size_t page = 64 * (dim + 1);
    for (const bool interleaved : {false, true}) {
      if (interleaved && head_dim % 2 != 0) continue;
      const OnDevice<uint16_t> qkv(row);
      const OnDevice<uint8_t> cache(std::vector<uint8_t>(2 * kv_heads * page, 0xa5));
      const OnDevice<int32_t> position({9}), zero({0});
      const PrepareAttentionArgs args{.qkv = qkv.data(),
                                      .qkv_stride = static_cast<int64_t>(row.size()),
                                      .num_heads = 1,
                                      .num_kv_heads = static_cast<int32_t>(kv_heads),
                                      .head_dim = head_dim,
                                      .interleaved = interleaved,
                                      .positions = position.data(),
                                      .table_of = zero.data(),
                                      .block_tables = zero.data(),
                                      .cache = cache.data(),
                                      .tokens = 1,
                                      .fp8 = true};
      ASSERT_EQ(LaunchPrepareAttention(args, DType::kBF16, nullptr), cudaSuccess);
      std::vector<uint8_t> expected(2 * kv_heads * page, 0xa5);
      for (size_t head = 0; head < 2 * kv_heads; ++head) {
        const std::vector<uint8_t> bytes = Fp8Row(&row[(1 + head) * dim], dim);
        std::copy_n(bytes.begin(), dim, &expected[head * page + 9 * dim]);
        expected[head * page + 64 * dim + 9] = bytes[dim];
      }
      ASSERT_EQ(cache.Read(), expected) << "head_dim " << head_dim;
    }
  }
}

// One token's heads, one of each kind, normalised and rotated.
PrepareAttentionArgs OneOfEach(int32_t dim, const OnDevice<float>& gain,
                               const OnDevice<float>& table, const OnDevice<int32_t>& position,
                               const OnDevice<int32_t>& zero) {
  return {.qkv_stride = 3 * dim,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = dim,
          .q_gain = gain.data(),
          .k_gain = gain.data(),
          .eps = 1e-5f,
          .rope_table = table.data(),
          .positions = position.data(),
          .table_of = zero.data(),
          .block_tables = zero.data(),
          .tokens = 1};
}

// A cache in 8 bits holds what it would of the rows as they are after rounding to 16.
TEST(PrepareAttentionKernelTest, EightBitsAreOfWhatHasBeenRotatedAndRounded) {
  const int32_t dim = 64;
  for (const bool interleaved : {false, true}) {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> head, row;
    for (int i = 0; i < dim; ++i) head.push_back(FloatToBf16(normal(random)));
    for (int i = 0; i < 3; ++i) row.insert(row.end(), head.begin(), head.end());
    std::vector<float> gain, angles;
    for (int i = 0; i < dim; ++i) {
      gain.push_back(1.0f + 0.1f * static_cast<float>(i));
      angles.push_back(std::sin(0.3f * static_cast<float>(i)));
    }
    const OnDevice<uint16_t> qkv(row);
    const OnDevice<float> on_gain(gain), table(angles);
    const OnDevice<uint8_t> cache(std::vector<uint8_t>(2 * 64 * (dim + 1), 0));
    const OnDevice<int32_t> zero({0});
    PrepareAttentionArgs args = OneOfEach(dim, on_gain, table, zero, zero);
    args.qkv = qkv.data();
    args.cache = cache.data();
    args.interleaved = interleaved;
    args.fp8 = true;
    ASSERT_EQ(LaunchPrepareAttention(args, DType::kBF16, nullptr), cudaSuccess);
    // The query, which is rounded to its place, has the key's elements, gains and angles.
    const std::vector<uint16_t> after = qkv.Read();
    const std::vector<uint8_t> expected = Fp8Row(after.data(), dim), stored = cache.Read();
    EXPECT_EQ(std::vector<uint8_t>(stored.begin(), stored.begin() + dim),
              std::vector<uint8_t>(expected.begin(), expected.end() - 1));
    EXPECT_EQ(stored[64 * dim], expected.back());
  }
}

TEST(PrepareAttentionKernelTest, KeysAreNormalisedAndRotatedLikeQueries) {
  // One head of each kind, all with the same elements and gains: the key in the cache is the query.
  for (const bool interleaved : {false, true}) {
    const int32_t dim = 36;
    std::vector<float> row;
    for (int32_t i = 0; i < 3 * dim; ++i) row.push_back(std::sin(static_cast<float>(i % dim + 1)));
    std::vector<float> gain, angles(static_cast<size_t>(2 * dim), 0.0f);
    for (int32_t i = 0; i < dim; ++i) {
      gain.push_back(1.0f + 0.1f * static_cast<float>(i));
      const float angle = 0.3f * static_cast<float>(i / 2);
      angles[dim + i] = i % 2 == 0 ? std::cos(angle) : std::sin(angle);
    }
    const OnDevice<float> qkv(row), on_gain(gain), table(angles),
        cache(std::vector<float>(2 * 64 * dim, std::nanf("")));
    const OnDevice<int32_t> position({1}), zero({0});
    PrepareAttentionArgs args = OneOfEach(dim, on_gain, table, position, zero);
    args.qkv = qkv.data();
    args.cache = cache.data();
    args.interleaved = interleaved;
    ASSERT_EQ(LaunchPrepareAttention(args, DType::kF32, nullptr), cudaSuccess);
    const std::vector<float> after = qkv.Read(), stored = cache.Read();
    EXPECT_NE(after, row);
    for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
      EXPECT_EQ(stored[static_cast<size_t>(dim) + d], after[d]);
      EXPECT_EQ(stored[static_cast<size_t>(65 * dim) + d], row[d]) << "values are only copied";
    }
  }
}

TEST(PrepareAttentionKernelTest, HeadsAreReadAfterTheKernelBeforeAllElseMayBeEarlier) {
  // A norm writes the rows; both begin early.
  const int64_t tokens = 5, dim = 3 * 8;
  const OnDevice<float> x(std::vector<float>(tokens * dim, 2.0f)),
      gain(std::vector<float>(dim, 1.0f)), head_gain(std::vector<float>(8, 3.0f)),
      table(std::vector<float>(8 * 64, 1.0f));
  const OnDevice<uint16_t> qkv(std::vector<uint16_t>(tokens * dim, 0)),
      cache(std::vector<uint16_t>(2 * 64 * 8, 0));
  const OnDevice<int32_t> positions({0, 1, -1, 2, 63}), zeros({0, 0, 0, 0, 0});
  const DeviceWatch watch;
  const OverlappingStream stream;
  const AddNormArgs norm{.x = x.data(),
                         .x_stride = dim,
                         .gain = gain.data(),
                         .out = qkv.data(),
                         .out_stride = dim,
                         .rows = tokens,
                         .dim = dim};
  const PrepareAttentionArgs prepare{.qkv = qkv.data(),
                                     .qkv_stride = dim,
                                     .num_heads = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .q_gain = head_gain.data(),
                                     .k_gain = head_gain.data(),
                                     .rope_table = table.data(),
                                     .positions = positions.data(),
                                     .table_of = zeros.data(),
                                     .block_tables = zeros.data(),
                                     .cache = cache.data(),
                                     .tokens = tokens};
  ASSERT_EQ(LaunchAddNorm(norm, DType::kBF16, stream), cudaSuccess);  // 1 everywhere
  ASSERT_EQ(LaunchPrepareAttention(prepare, DType::kBF16, stream), cudaSuccess);
  stream.Synchronize();
  const std::vector<uint16_t> rows = qkv.Read(), stored = cache.Read();
  for (size_t d = 0; d < 8; ++d) {
    // 3, turned by (cos, sin) = (1, 1).
    const uint16_t turned = FloatToBf16(d < 4 ? 0.0f : 6.0f);
    EXPECT_EQ(rows[d], turned);
    EXPECT_EQ(rows[48 + d], FloatToBf16(1.0f)) << "padding is left alone";
    for (const size_t slot : {size_t{0}, size_t{1}, size_t{2}, size_t{63}}) {
      EXPECT_EQ(stored[slot * 8 + d], turned);
      EXPECT_EQ(stored[(64 + slot) * 8 + d], FloatToBf16(1.0f));
    }
  }
  watch.ExpectOverlap();
}

TEST(EmbedKernelTest, PaddingReadsNothingBesideItsTables) {
  const OnDevice<uint16_t> tokens(Bf16Range(3 * 8)), places(Bf16Range(2 * 8));
  const OnDevice<int32_t> ids({-2, 0}), sampled({0, 2}), positions({1, -1});
  const OnDevice<float> out(std::vector<float>(16, 0.0f));
  const EmbedArgs args{
      .tokens_table = {.data = tokens.data(), .dtype = DType::kBF16, .stride = 8},
      .positions_table = {.data = places.data(), .dtype = DType::kBF16, .stride = 8},
      .token_ids = ids.data(),
      .sampled = sampled.data(),
      .positions = positions.data(),
      .tokens = 2,
      .dim = 8,
      .out = out.data(),
      .out_stride = 8};
  ASSERT_EQ(LaunchEmbed(args, nullptr), cudaSuccess);
  const std::vector<float> values = out.Read();
  for (size_t j = 0; j < 8; ++j) {
    EXPECT_EQ(values[j], static_cast<float>(17 + j) + static_cast<float>(9 + j));
    EXPECT_EQ(values[8 + j], static_cast<float>(1 + j) + static_cast<float>(1 + j));
  }
}

TEST(EmbedKernelTest, BeginsABatchWhenTheKernelsBeforeHaveEnded) {
  const OnDevice<int32_t> ids({0});
  const DeviceWatch watch;
  const OverlappingStream stream;
  for (int i = 0; i < 2; ++i) {  // of rows without elements
    EmbedArgs embed;
    embed.token_ids = ids.data();
    embed.tokens = 1;
    ASSERT_EQ(LaunchEmbed(embed, stream), cudaSuccess);
    EmbedBlocksArgs embed_blocks;
    embed_blocks.rows = ids.data();
    embed_blocks.tokens = 1;
    ASSERT_EQ(LaunchEmbedBlocks(embed_blocks, stream), cudaSuccess);
  }
  stream.Synchronize();
  watch.ExpectNoOverlap();
}

TEST(RowKernelsTest, EveryKernelWaitsForTheOneBefore) {
  // A chain in which each kernel reads what the one before it wrote, with overlap: a block of each
  // begins early, and reads too early unless it waits.
  const int64_t dim = 2304;
  std::vector<uint16_t> ones(4 * dim, FloatToBf16(1.0f));
  const OnDevice<uint16_t> table(ones), delta(ones), normed(std::vector<uint16_t>(ones.size(), 0));
  const OnDevice<int32_t> ids({0, 1, 2, 3});
  const OnDevice<float> x(std::vector<float>(4 * dim, 0.0f)), gain(std::vector<float>(dim, 1.0f));
  const DeviceWatch watch;
  const OverlappingStream stream;
  const EmbedArgs embed{
      .tokens_table = {.data = table.data(), .dtype = DType::kBF16, .stride = dim},
      .positions_table = {},
      .token_ids = ids.data(),
      .tokens = 4,
      .dim = dim,
      .out = x.data(),
      .out_stride = dim};
  AddNormArgs norm{.x = x.data(),
                   .x_stride = dim,
                   .delta = delta.data(),
                   .delta_stride = dim,
                   .gain = gain.data(),
                   .out = normed.data(),
                   .out_stride = dim,
                   .rows = 4,
                   .dim = dim};
  ASSERT_EQ(LaunchEmbed(embed, stream), cudaSuccess);
  ASSERT_EQ(LaunchAddNorm(norm, DType::kBF16, stream), cudaSuccess);  // x = 2
  norm.delta = normed.data();                                         // 1 everywhere
  norm.out = delta.data();
  ASSERT_EQ(LaunchAddNorm(norm, DType::kBF16, stream), cudaSuccess);  // x = 3
  stream.Synchronize();
  EXPECT_EQ(x.Read(), std::vector<float>(4 * dim, 3.0f));
  EXPECT_EQ(delta.Read(), ones);
  watch.ExpectOverlap();
}

// More rows than there are blocks, against halves of them; the last group of columns is narrow, and
// rows are read and written in pieces of 16 bytes or not.
TEST(SwiGluTest, RowsThatABlockGoesOnToAreLikeItsFirst) {
  constexpr int kRows = 2051;
  constexpr int kColumns = 40;
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (const int stride : {2 * kColumns, 2 * kColumns + 1}) {
    std::vector<uint16_t> values(kRows * stride);
    for (uint16_t& value : values) value = FloatToBf16(normal(engine));
    const OnDevice<uint16_t> gate_up(values);
    const std::vector<uint16_t> untouched(values.size(), 0x7fff);
    const auto launch = [&](int begin, int end, uint16_t* out) {
      const SwiGluArgs args{.gate_up = gate_up.data() + begin * stride,
                            .gate_up_stride = stride,
                            .output = {.out = out + begin * stride, .out_stride = stride},
                            .m = end - begin,
                            .n = 2 * kColumns};
      EXPECT_EQ(LaunchSwiGlu(args, DType::kBF16, nullptr), cudaSuccess);
    };
    const OnDevice<uint16_t> at_once(untouched), in_halves(untouched);
    launch(0, kRows, at_once.data());
    launch(0, 1024, in_halves.data());
    launch(1024, kRows, in_halves.data());
    const std::vector<uint16_t> out = at_once.Read();
    EXPECT_EQ(out, in_halves.Read()) << stride;
    for (int row = 0; row < kRows; ++row) {
      const auto* const first = &out[row * stride];
      ASSERT_EQ(std::count(first, first + kColumns, 0x7fff), 0) << row;
      ASSERT_EQ(std::count(first + kColumns, first + stride, 0x7fff), stride - kColumns) << row;
    }
  }
}

}  // namespace
}  // namespace tlm
