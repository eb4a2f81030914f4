// What every instruction set's row kernels promise bit by bit: a row's result does not depend on
// its neighbours, the threads or its position, and values are rounded as float16.h rounds them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_ops.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

// Rows in host memory.
struct HostRows {
  HostRows(int64_t count, int64_t cols, DType dtype, uint64_t seed)
      : bytes(static_cast<size_t>(count * cols) * DTypeBytes(dtype)),
        rows{bytes.data(), count, cols, cols, dtype} {
    const std::vector<float> values = RandomFloats(count * cols, seed);
    for (int64_t i = 0; i < count * cols; ++i) {
      const float value = values[i];
      if (dtype == DType::kF32) {
        rows.as<float>()[i] = value;
      } else {
        rows.as<uint16_t>()[i] = FloatToBf16(value);
      }
    }
  }
  HostRows(const HostRows& other) : bytes(other.bytes), rows(other.rows) {
    rows.data = bytes.data();
  }
  Rows Row(int64_t row) {
    Rows one = rows;
    one.data = bytes.data() + static_cast<size_t>(row * rows.stride) * DTypeBytes(rows.dtype);
    one.rows = 1;
    return one;
  }

  std::vector<char> bytes;
  Rows rows;
};

class RowKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  std::unique_ptr<CpuOps> OpsOf(int threads) { return *CpuOps::Create(threads, GetParam()); }
};

TEST_P(RowKernelsTest, ANormedRowIsTheSameAloneAndAmongOthers) {
  constexpr int64_t kRows = 67;
  const auto alone = OpsOf(1);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t cols : {5, 77, 1000, 1024}) {
      const std::vector<float> gain = RandomFloats(cols, 1), bias = RandomFloats(cols, 2);
      for (const Norm::Kind kind : {Norm::Kind::kRms, Norm::Kind::kLayer}) {
        const Norm norm{.kind = kind, .gain = gain.data(), .bias = bias.data(), .eps = 1e-6f};
        const HostRows x(kRows, cols, DType::kF32, 3);
        HostRows delta(kRows, cols, dtype, 4);
        HostRows single_x(x), single_out(kRows, cols, dtype, 5);
        for (int64_t row = 0; row < kRows; ++row) {
          ASSERT_THAT(alone->AddNorm(single_x.Row(row), delta.Row(row), norm, single_out.Row(row)),
                      IsOk());
        }
        for (const int threads : {1, 2, 3}) {
          HostRows batch_x(x), batch_out(kRows, cols, dtype, 6);
          ASSERT_THAT(OpsOf(threads)->AddNorm(batch_x.rows, delta.rows, norm, batch_out.rows),
                      IsOk());
          EXPECT_EQ(batch_x.bytes, single_x.bytes) << cols;
          EXPECT_EQ(batch_out.bytes, single_out.bytes) << cols;
        }
      }
    }
  }
}

TEST_P(RowKernelsTest, NormsRoundToTheNearestEvenAndKeepWhatIsNotFinite) {
  // With x = 1, whose mean square is 1, and eps = 0 the result is the gain, rounded.
  std::vector<float> gain = {0.0f,
                             -0.0f,
                             std::nanf(""),
                             -std::nanf(""),
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::max(),
                             1e-40f,
                             -1e-45f,
                             0x1p-126f};
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u, 0x3f7f8000u,
                              0x7f7f7fffu, 0x7f7f8000u, 0x00008000u, 0x00018000u, 0xbf808000u}) {
    gain.push_back(std::bit_cast<float>(bits));
  }
  const auto ops = OpsOf(1);
  // Every value in every lane and in the rest behind the last vector.
  for (int64_t shift = 0; shift < 16; ++shift) {
    const int64_t cols = 1000 + shift;
    std::vector<float> gains(cols);
    for (size_t j = 0; j < gains.size(); ++j) {
      gains[j] = gain[(j + static_cast<size_t>(shift)) % gain.size()];
    }
    std::vector<float> x(cols, 1.0f);
    std::vector<uint16_t> out(cols);
    const Norm norm{.gain = gains.data()};
    ASSERT_THAT(ops->AddNorm({x.data(), 1, cols, cols, DType::kF32}, Rows(), norm,
                             {out.data(), 1, cols, cols, DType::kBF16}),
                IsOk());
    for (size_t j = 0; j < gains.size(); ++j) {
      ASSERT_EQ(out[j], FloatToBf16(gains[j])) << gains[j] << " at " << j << " of " << cols;
    }
  }
}

TEST_P(RowKernelsTest, AFaultyRowSpoilsNoOther) {
  constexpr int64_t kRows = 4, kCols = 100;
  const std::vector<float> gain(kCols, 1.0f);
  const Norm norm{.gain = gain.data(), .eps = 1e-6f};
  HostRows x(kRows, kCols, DType::kF32, 3), delta(kRows, kCols, DType::kF32, 4);
  x.rows.as<float>()[kCols + 99] = std::nanf("");
  delta.rows.as<float>()[2 * kCols] = std::numeric_limits<float>::infinity();
  HostRows out(kRows, kCols, DType::kF32, 5);
  ASSERT_THAT(OpsOf(2)->AddNorm(x.rows, delta.rows, norm, out.rows), IsOk());
  for (int64_t j = 0; j < kCols; ++j) {
    EXPECT_TRUE(std::isfinite(out.rows.as<float>()[j]));
    EXPECT_TRUE(std::isnan(out.rows.as<float>()[kCols + j]));
    EXPECT_TRUE(std::isfinite(out.rows.as<float>()[3 * kCols + j]));
  }
}

// Tokens of three sequences, one of which crosses a block's border.
Batch ThreeSequences() {
  return BatchOf({{.begin = 40, .tokens = 41, .blocks = {5, 1, 0}},
                  {.begin = 7, .tokens = 1, .blocks = {2, 0, 0}},
                  {.begin = 64, .tokens = 19, .blocks = {3, 4, 0}}});
}

struct HeadShape {
  int64_t heads, kv_heads, head_dim;
  bool rotated;
};

TEST_P(RowKernelsTest, ATokensHeadsAndCacheAreTheSameAloneAndAmongOthers) {
  const Batch batch = ThreeSequences();
  const auto alone = OpsOf(1);
  for (const HeadShape shape :
       {HeadShape{2, 1, 13, false}, HeadShape{4, 2, 6, true}, HeadShape{4, 2, 64, true},
        HeadShape{2, 1, 96, true}, HeadShape{1, 1, 1024, true}}) {
    const int64_t dim = shape.head_dim;
    const int64_t cols = (shape.heads + 2 * shape.kv_heads) * dim;
    const std::vector<float> gain = RandomFloats(dim, 1), angles = RandomFloats(128 * dim, 2);
    for (const DType cache_type : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const HeadTransform transform{.q_gain = gain.data(),
                                      .k_gain = gain.data(),
                                      .eps = 1e-6f,
                                      .rope_table = shape.rotated ? angles.data() : nullptr};
        const auto run = [&](CpuOps& ops, bool singly, HostRows& qkv, std::vector<char>& cache) {
          const KvLayer layer{cache.data(), cache_type, 6, shape.kv_heads, dim};
          TokenLayout layout{.tokens = batch.tokens(),
                             .max_blocks = batch.max_blocks,
                             .positions = batch.positions.data(),
                             .sequence_of = batch.sequence_of.data(),
                             .block_tables = batch.block_tables.data()};
          if (!singly) {
            ASSERT_THAT(ops.PrepareAttention(qkv.rows, transform, layout, layer), IsOk());
            return;
          }
          layout.tokens = 1;
          for (int64_t token = 0; token < batch.tokens(); ++token) {
            ASSERT_THAT(ops.PrepareAttention(qkv.Row(token), transform, layout, layer), IsOk());
            ++layout.positions;
            ++layout.sequence_of;
          }
        };
        const HostRows qkv(batch.tokens(), cols, dtype, 9);
        const size_t bytes = 6 * KvLayer{nullptr, cache_type, 6, shape.kv_heads, dim}.block_bytes();
        HostRows single(qkv);
        std::vector<char> single_cache(bytes, 0x11);
        run(*alone, true, single, single_cache);
        for (const int threads : {1, 2, 3}) {
          HostRows together(qkv);
          std::vector<char> cache(bytes, 0x11);
          run(*OpsOf(threads), false, together, cache);
          EXPECT_EQ(cache, single_cache) << dim;
          for (int64_t token = 0; token < batch.tokens(); ++token) {
            const size_t q_bytes = static_cast<size_t>(shape.heads * dim) * DTypeBytes(dtype);
            ASSERT_EQ(std::memcmp(together.Row(token).data, single.Row(token).data, q_bytes), 0)
                << "head_dim " << dim << ", token " << token;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RowKernelsTest, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace tlm
