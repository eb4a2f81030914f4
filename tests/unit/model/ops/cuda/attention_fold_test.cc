// How a split item's records become its output, without the tiles: records are written by hand, and
// the unit that is done last has nothing left but to fold them. Bit for bit as a plain loop over
// the records does it, whose operations are written here anew.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/attention/attention_work.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/attention_world.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kScale = 0.125f;
constexpr float kScaleLog2 = kScale * 1.44269504f;

// 2^x of math.h.
float Exp2(float x) {
  if (std::isnan(x)) return x;
  if (x < -125.0f) return 0.0f;
  const float whole = std::nearbyint(x);
  const float f = x - whole;
  float p = 1.5252733804e-5f;
  for (const float c : {1.5403530394e-4f, 1.3333558146e-3f, 9.6181291076e-3f, 5.5504108664e-2f,
                        2.4022650696e-1f, 6.9314718056e-1f, 1.0f}) {
    p = std::fma(p, f, c);
  }
  return std::ldexp(p, static_cast<int>(whole));
}

struct Shape {
  DType dtype;
  bool mma;
  int32_t rows;
  int32_t head_dim;
  int32_t records;
};

enum class Maxima { kNear, kFar, kTied, kRising, kFalling, kZeros };

// The records of an item: [record][row] (max, sum), and [record][row][head_dim].
struct Records {
  std::vector<float> stats, values;
};

// Some records are empty, of all kinds of neighbours; the first of them, too, if so asked.
Records RandomRecords(const Shape& shape, Maxima maxima, bool first_empty, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Records records;
  for (int32_t record = 0; record < shape.records; ++record) {
    for (int32_t row = 0; row < shape.rows; ++row) {
      float max = normal(random);
      if (maxima == Maxima::kFar) max *= 900.0f;
      if (maxima == Maxima::kTied) max = std::round(max);
      if (maxima == Maxima::kRising) max += 3.0f * static_cast<float>(record);
      if (maxima == Maxima::kFalling) max -= 3.0f * static_cast<float>(record);
      if (maxima == Maxima::kZeros) max = std::copysign(0.0f, max);
      float sum = 1.0f + 10.0f * std::fabs(normal(random));
      // Every row has a record that is not empty: the last, or the first.
      const bool last = record + 1 == shape.records;
      const bool empty =
          record == 0 ? first_empty && !last : !(last && first_empty) && random() % 4 == 0;
      if (empty) {
        max = -kInfinity;
        sum = 0.0f;
      }
      records.stats.insert(records.stats.end(), {max, sum});
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        const float value = random() % 16 == 0 ? -0.0f : 3.0f * normal(random);
        // A sum of nothing from +0.
        records.values.push_back(empty ? 0.0f : value);
      }
    }
  }
  return records;
}

// [rows][head_dim] in float32.
std::vector<float> FoldedInOrder(const Shape& shape, const Records& records) {
  std::vector<float> out;
  for (int32_t row = 0; row < shape.rows; ++row) {
    const auto at = [&](int32_t record) {
      return static_cast<size_t>(record) * static_cast<size_t>(shape.rows) +
             static_cast<size_t>(row);
    };
    const auto values = [&](int32_t record) {
      return records.values.begin() + static_cast<std::ptrdiff_t>(at(record)) * shape.head_dim;
    };
    float max = records.stats[2 * at(0)];
    float sum = records.stats[2 * at(0) + 1];
    std::vector<float> state(values(0), values(0) + shape.head_dim);
    for (int32_t record = 1; record < shape.records; ++record) {
      const float tile_max = records.stats[2 * at(record)];
      const float tile_sum = records.stats[2 * at(record) + 1];
      if (tile_sum == 0.0f) continue;
      const float new_max = tile_max > max ? tile_max : max;
      const float keep = Exp2((max - new_max) * kScaleLog2);
      const float add = Exp2((tile_max - new_max) * kScaleLog2);
      sum = std::fma(tile_sum, add, sum * keep);
      for (size_t d = 0; d < state.size(); ++d) {
        state[d] = std::fma(values(record)[static_cast<std::ptrdiff_t>(d)], add, state[d] * keep);
      }
      max = new_max;
    }
    const float reciprocal = 1.0f / sum;
    for (const float value : state) out.push_back(value * reciprocal);
  }
  return out;
}

// What LaunchAttention makes of them: the last unit of the item begins after its tiles.
std::vector<float> FoldedByKernel(const Shape& shape, const Records& records) {
  std::vector<uint8_t> work(AttentionUnitsOffset(1) + sizeof(AttentionUnit));
  const int32_t first[2] = {0, 1};
  std::memcpy(work.data(), first, sizeof(first));
  // Record 0 is that of a prefix of one tile.
  const AttentionUnit unit{.token = 0,
                           .position = shape.records * kAttentionTile - 1,
                           .head = 0,
                           .rows = shape.rows,
                           .table = 0,
                           .kv_head = 0,
                           .begin = shape.records + 1,
                           .end = shape.records + 1,
                           .item_end = shape.records,
                           .units = 2,
                           .prefix_end = 1,
                           .ticket = 0,
                           .partial_row = 3,
                           .last_position = shape.records * kAttentionTile - 1,
                           .stored = 0};
  std::memcpy(work.data() + AttentionUnitsOffset(1), &unit, sizeof(unit));
  const auto before = static_cast<size_t>(unit.partial_row);
  const auto dim = static_cast<size_t>(shape.head_dim);
  DeviceMemory on_work(work);
  DeviceMemory stats((2 * before + records.stats.size()) * sizeof(float));
  DeviceMemory values((before * dim + records.values.size()) * sizeof(float));
  EXPECT_EQ(cudaMemcpyAsync(stats.as<float>() + 2 * before, records.stats.data(),
                            records.stats.size() * sizeof(float), cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(values.as<float>() + before * dim, records.values.data(),
                            records.values.size() * sizeof(float), cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  const uint32_t done = 1;
  DeviceMemory ticket(sizeof(done));
  ticket.Write(&done, sizeof(done));
  const size_t elements = static_cast<size_t>(shape.rows) * dim;
  DeviceMemory out(elements * DTypeBytes(shape.dtype));
  EXPECT_EQ(LoadAttention(shape.dtype, shape.head_dim, /*fp8=*/false, shape.mma), cudaSuccess);
  const DeviceMemory queries(elements * DTypeBytes(shape.dtype));  // read, of no use
  const AttentionArgs args{.q = queries.data(),
                           .q_stride = shape.rows * shape.head_dim,
                           .out = out.data(),
                           .out_stride = shape.rows * shape.head_dim,
                           .num_kv_heads = 1,
                           .group = shape.rows,
                           .head_dim = shape.head_dim,
                           .scale = kScale,
                           .blocks = 1,
                           .work = on_work.data(),
                           .tickets = ticket.as<uint32_t>(),
                           .partial_stats = stats.as<float>(),
                           .partial_values = values.as<float>()};
  EXPECT_EQ(LaunchAttention(args, shape.dtype, shape.mma, nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  return Decode(out.Read(elements * DTypeBytes(shape.dtype)), shape.dtype);
}

class AttentionFoldTest : public ::testing::TestWithParam<Maxima> {};

TEST_P(AttentionFoldTest, EqualsOneRecordAfterTheOtherBitForBit) {
  // Rows that share a warp, that have it alone, that are more than a pass over their elements.
  const Shape shapes[] = {{DType::kF32, false, 1, 128, 0},  {DType::kF32, false, 4, 128, 0},
                          {DType::kF32, false, 5, 4, 0},    {DType::kF32, false, 16, 36, 0},
                          {DType::kF32, false, 3, 7, 0},    {DType::kF32, false, 4, 300, 0},
                          {DType::kBF16, true, 4, 128, 0},  {DType::kBF16, true, 8, 64, 0},
                          {DType::kF16, true, 1, 80, 0},    {DType::kF16, true, 13, 96, 0},
                          {DType::kBF16, true, 64, 128, 0}, {DType::kBF16, true, 7, 256, 0}};
  uint64_t seed = 1;
  for (Shape shape : shapes) {
    for (const int32_t count : {1, 2, 3, 5, 17, 33, 128, 300}) {
      if (int64_t{count} * shape.rows > 2048) continue;
      shape.records = count;
      for (const bool first_empty : {false, true}) {
        const Records records = RandomRecords(shape, GetParam(), first_empty, ++seed);
        const std::vector<float> expected =
            Decode(Encode(FoldedInOrder(shape, records), shape.dtype), shape.dtype);
        ASSERT_EQ(Bits(FoldedByKernel(shape, records)), Bits(expected))
            << DTypeName(shape.dtype) << ", " << shape.rows << " rows of " << shape.head_dim << ", "
            << count << " records, the first " << (first_empty ? "" : "not ") << "empty";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maxima, AttentionFoldTest,
                         ::testing::Values(Maxima::kNear, Maxima::kFar, Maxima::kTied,
                                           Maxima::kRising, Maxima::kFalling, Maxima::kZeros));

}  // namespace
}  // namespace tlm
