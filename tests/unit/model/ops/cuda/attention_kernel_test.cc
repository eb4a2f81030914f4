// Paged attention's kernels: against double precision, and bit for bit
// over chunks, splits of the work, grids, batch mates and block orders, in a cache whose unwritten
// positions and foreign blocks are NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/ops/cuda/kernels/attention/prepare_attention.h"
#include "model/ops/cuda/kernels/embed.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/attention_world.h"

namespace tlm {
namespace {

struct Expectation {
  double value;
  double magnitude;  // the mean of |v| by the same weights
};

// Element d of query head `head` at `position`.
std::vector<Expectation> Expected(const Heads& heads, const Sequence& sequence, int64_t position,
                                  int64_t head) {
  const int64_t kv_head = head / (heads.query_heads / heads.kv_heads);
  const int64_t first = heads.window > 0 ? std::max<int64_t>(0, position + 1 - heads.window) : 0;
  const auto at = [&](const std::vector<float>& values, int64_t t, int64_t d) -> double {
    return values[(t * heads.kv_heads + kv_head) * heads.head_dim + d];
  };
  std::vector<double> scores;
  for (int64_t t = first; t <= position; ++t) {
    double dot = 0.0;
    for (int64_t d = 0; d < heads.head_dim; ++d) {
      dot += double{sequence.q[(position * heads.query_heads + head) * heads.head_dim + d]} *
             at(sequence.k, t, d);
    }
    scores.push_back(dot / std::sqrt(static_cast<double>(heads.head_dim)));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  std::vector<Expectation> out(heads.head_dim);
  double sum = 0.0;
  for (int64_t t = first; t <= position; ++t) {
    const double weight = std::exp(scores[t - first] - max);
    sum += weight;
    for (int64_t d = 0; d < heads.head_dim; ++d) {
      out[d].value += weight * at(sequence.v, t, d);
      out[d].magnitude += weight * std::fabs(at(sequence.v, t, d));
    }
  }
  for (Expectation& e : out) e = {e.value / sum, e.magnitude / sum};
  return out;
}

// Of all positions, or every `step`th.
void ExpectNear(const Heads& heads, const Sequence& sequence, const std::vector<float>& out,
                int64_t step = 1) {
  // Of a rounding to the activation type: the weights' and the output's.
  const double rounding = heads.dtype == DType::kBF16  ? 0x1p-8
                          : heads.dtype == DType::kF16 ? 0x1p-11
                                                       : 0x1p-22;
  for (int64_t position = sequence.tokens - 1; position >= 0; position -= step) {
    for (int64_t head = 0; head < heads.query_heads; ++head) {
      const std::vector<Expectation> expected = Expected(heads, sequence, position, head);
      for (int64_t d = 0; d < heads.head_dim; ++d) {
        const Expectation& e = expected[d];
        ASSERT_NEAR(out[(position * heads.query_heads + head) * heads.head_dim + d], e.value,
                    rounding * (std::fabs(e.value) + e.magnitude) + 3e-6)
            << heads.name() << " position " << position << " head " << head << " dim " << d;
      }
    }
  }
}

std::vector<std::vector<Part>> Chunks(int sequence, int64_t tokens, int64_t chunk) {
  std::vector<std::vector<Part>> batches;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    batches.push_back({{sequence, begin, std::min(tokens, begin + chunk)}});
  }
  return batches;
}

TEST(AttentionKernelTest, EqualsSoftmaxInDoublePrecision) {
  const Heads cases[] = {
      {DType::kBF16, 4, 2, 64},      {DType::kF16, 2, 1, 80},       {DType::kBF16, 3, 1, 96},
      {DType::kF16, 4, 4, 128},      {DType::kBF16, 8, 1, 128, 70}, {DType::kBF16, 2, 1, 256},
      {DType::kF16, 1, 1, 256, 100}, {DType::kF32, 4, 2, 64},       {DType::kF32, 6, 2, 20},
      {DType::kF32, 3, 1, 7, 37},    {DType::kBF16, 2, 2, 8, 64},   {DType::kF16, 5, 1, 112},
      {DType::kF32, 2, 1, 300},      {DType::kF32, 1, 1, 1},        {DType::kF16, 20, 1, 16, 1}};
  int64_t tokens = 130;
  for (const Heads& heads : cases) {
    // Lengths around the borders of tiles, too.
    tokens = tokens == 130 ? 64 : tokens == 64 ? 65 : 130;
    World world(heads, {Sequence(heads, tokens, 3, {5, 1, 17})});
    world.Run({{{0, 0, tokens}}}, {.unit_tiles = 1});
    ExpectNear(heads, world.sequence(0), world.output(0));
    if (!RunsOnGpu()) continue;
    World long_world(heads, {Sequence(heads, 1990, 4, ScatteredBlocks(1990, 5))});
    long_world.Run({{{0, 0, 1990}}}, {.grid_blocks = 264});
    ExpectNear(heads, long_world.sequence(0), long_world.output(0), 37);
  }
}

TEST(AttentionKernelTest, ChunksSplitsAndGridsGiveTheSameBits) {
  const Heads cases[] = {{DType::kBF16, 4, 2, 64},     {DType::kF16, 3, 1, 80, 70},
                         {DType::kBF16, 2, 1, 128},    {DType::kF16, 2, 1, 96, 100},
                         {DType::kF32, 4, 2, 20},      {DType::kF32, 2, 1, 12, 50},
                         {DType::kBF16, 10, 2, 24, 64}};
  for (const Heads& heads : cases) {
    const int64_t tokens = 203;
    World world(heads, {Sequence(heads, tokens, 5, {6, 3, 7, 0})});
    world.Run({{{0, 0, tokens}}}, {.unit_tiles = 1000});
    const std::vector<uint32_t> whole = Bits(world.output(0));
    int64_t turn = 0;
    for (const int64_t chunk : {17, 63, 64, 65, 100, 203}) {
      const int64_t unit_tiles[] = {1, 0, 3, 16, 2};
      const Deal deal{.unit_tiles = unit_tiles[turn++ % 5],
                      .grid_blocks = 1 + chunk % 9,
                      .plan_with_window = turn % 2 == 0,
                      .max_rows = turn % 3 == 0 ? 16 : 0,
                      .padding = static_cast<int>(chunk % 3)};
      world.Run(Chunks(0, tokens, chunk), deal);
      ASSERT_EQ(Bits(world.output(0)), whole) << heads.name() << ", chunks of " << chunk;
    }
  }
}

TEST(AttentionKernelTest, LaunchesThatOverlapDisturbNothing) {
  for (const Heads& heads : {Heads{DType::kF16, 4, 2, 96, 90}, Heads{DType::kF32, 3, 1, 10}}) {
    World world(heads, {Sequence(heads, 150, 23, {3, 1, 2})});
    world.Run({{{0, 0, 150}}}, {});
    const std::vector<uint32_t> once = Bits(world.output(0));
    const DeviceWatch watch;
    world.Run({{{0, 0, 150}}}, {.unit_tiles = 1, .launches = 3});
    EXPECT_EQ(Bits(world.output(0)), once) << heads.name();
    watch.ExpectOverlap();
  }
}

// Two steps of one layer, each kernel as early as it may begin: tokens 0 .. 63 are stored in the
// cache; then, behind the kernel that begins a batch, token 64 is stored and attends.
std::vector<uint32_t> TwoSteps(const AttentionUnit& unit, int32_t window, bool overlap) {
  constexpr int64_t kDim = 64;
  const Heads heads{DType::kBF16, 1, 1, kDim};
  const Sequence tokens(heads, 65, 37, {});
  std::vector<float> rows;
  for (int64_t t = 0; t < 65; ++t) {
    for (const std::vector<float>* of : {&tokens.q, &tokens.k, &tokens.v}) {
      rows.insert(rows.end(), of->begin() + t * kDim, of->begin() + (t + 1) * kDim);
    }
  }
  const DeviceMemory qkv(Encode(rows, heads.dtype)), cache(2 * 2 * 64 * kDim * 2), out(kDim * 2),
      table(std::vector<uint8_t>(kDim * 4)), embedded(kDim * 4);
  std::vector<int32_t> numbers(130);  // positions, where each token's blocks begin
  std::iota(numbers.begin(), numbers.begin() + 65, 0);
  numbers.insert(numbers.end(), {1, 0});  // the blocks
  DeviceMemory arrays(numbers.size() * sizeof(int32_t));
  arrays.Write(numbers.data(), numbers.size() * sizeof(int32_t));
  std::vector<uint8_t> work(AttentionUnitsOffset(2) + sizeof(unit));
  const int32_t first[3] = {0, 1, 1};  // the second block of the grid has nothing to do
  std::memcpy(work.data(), first, sizeof(first));
  std::memcpy(work.data() + AttentionUnitsOffset(2), &unit, sizeof(unit));
  const DeviceMemory on_work(work);
  PrepareAttentionArgs prepare{.qkv = qkv.data(),
                               .qkv_stride = 3 * kDim,
                               .num_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim = kDim,
                               .positions = arrays.as<int32_t>(),
                               .table_of = arrays.as<int32_t>() + 65,
                               .block_tables = arrays.as<int32_t>() + 130,
                               .cache = cache.data(),
                               .tokens = 64};
  const EmbedArgs embed{
      .tokens_table = {.data = table.data(), .dtype = DType::kF32, .stride = kDim},
      .positions_table = {},
      .token_ids = arrays.as<int32_t>(),
      .tokens = 1,
      .dim = kDim,
      .out = embedded.as<float>(),
      .out_stride = kDim};
  const AttentionArgs attention{.q = qkv.as<uint16_t>() + 64 * 3 * kDim,
                                .q_stride = 3 * kDim,
                                .out = out.data(),
                                .out_stride = kDim,
                                .cache = cache.data(),
                                .block_tables = prepare.block_tables,
                                .num_kv_heads = 1,
                                .group = 1,
                                .head_dim = kDim,
                                .window = window,
                                .scale = 0.125f,
                                .blocks = 2,
                                .work = on_work.data()};
  EXPECT_EQ(LoadAttention(heads.dtype, kDim, heads.fp8, /*mma=*/true), cudaSuccess);
  const OverlappingStream stream;
  SetKernelOverlap(overlap);
  EXPECT_EQ(LaunchPrepareAttention(prepare, heads.dtype, stream), cudaSuccess);
  EXPECT_EQ(LaunchEmbed(embed, stream), cudaSuccess);
  prepare.qkv = qkv.as<uint16_t>() + 64 * 3 * kDim;
  prepare.positions += 64;
  prepare.tokens = 1;
  EXPECT_EQ(LaunchPrepareAttention(prepare, heads.dtype, stream), cudaSuccess);
  EXPECT_EQ(LaunchAttention(attention, heads.dtype, /*mma=*/true, stream), cudaSuccess);
  stream.Synchronize();
  return Bits(Decode(out.Read(kDim * 2), heads.dtype));
}

TEST(AttentionKernelTest, ReadsEarlyWhatEarlierStepsStoredAndThisStepsKeysAfterTheyAreStored) {
  // Both tiles are seen, or the last alone, which this step writes to.
  for (const int32_t window : {0, 1}) {
    const AttentionUnit unit{.token = 0,
                             .position = 64,
                             .head = 0,
                             .rows = 1,
                             .table = 0,
                             .kv_head = 0,
                             .begin = 0,
                             .end = 2,
                             .item_end = 2,
                             .units = 1,
                             .prefix_end = 2,
                             .ticket = 0,
                             .partial_row = 0,
                             .last_position = 64,
                             .stored = 64};
    const std::vector<uint32_t> in_order = TwoSteps(unit, window, false);
    const DeviceWatch watch;
    for (uint64_t seed = 1; seed <= 4; ++seed) {  // which block begins early is drawn
      ConfigureDevice({.seed = seed});
      EXPECT_EQ(TwoSteps(unit, window, DeviceOverlapsKernels()), in_order) << window;
    }
    watch.ExpectOverlap();
  }
}

TEST(AttentionKernelTest, ABatchWithoutWorkWaitsForTheKernelBefore) {
  // Padding alone. The emulated device fails a kernel that ends without waiting.
  for (const Heads& heads : {Heads{DType::kBF16, 1, 1, 64}, Heads{DType::kF32, 1, 1, 8}}) {
    World world(heads, {Sequence(heads, 1, 39, {0})});
    world.Run({{}}, {.padding = 2, .launches = 3});
  }
}

TEST(AttentionKernelTest, BatchMatesAndBlockOrderDoNotMatter) {
  for (const Heads& heads : {Heads{DType::kBF16, 4, 2, 128}, Heads{DType::kF16, 6, 2, 16}}) {
    World alone(heads, {Sequence(heads, 140, 11, {0, 1, 2})});
    alone.Run({{{0, 0, 100}}, {{0, 100, 140}}}, {});
    World crowd(heads, {Sequence(heads, 140, 11, {20, 3, 11}), Sequence(heads, 190, 12, {5, 6, 7}),
                        Sequence(heads, 30, 13, {9})});
    // One of the mates is all NaN.
    for (std::vector<float>* values :
         {&crowd.sequence(2).q, &crowd.sequence(2).k, &crowd.sequence(2).v}) {
      std::fill(values->begin(), values->end(), kNan);
    }
    for (const int64_t unit_tiles : {0, 1, 2}) {
      crowd.Run({{{1, 0, 70}, {0, 0, 1}},
                 {{2, 0, 30}, {0, 1, 100}, {1, 189, 190}},
                 {{0, 100, 140}, {2, 29, 30}, {1, 128, 190}}},
                {.unit_tiles = unit_tiles, .grid_blocks = 5, .padding = 2});
      ASSERT_EQ(Bits(crowd.output(0)), Bits(alone.output(0))) << heads.name();
      ASSERT_TRUE(std::isnan(crowd.output(2)[0]));
    }
  }
}

TEST(AttentionKernelTest, NonFiniteQueriesStayInTheirRows) {
  for (const Heads& heads : {Heads{DType::kBF16, 2, 1, 64}, Heads{DType::kF32, 2, 1, 8}}) {
    World world(heads, {Sequence(heads, 100, 15, {1, 0})});
    world.Run({{{0, 0, 100}}}, {.unit_tiles = 1});
    const std::vector<uint32_t> clean = Bits(world.output(0));
    const int64_t bad = 70 * heads.q_cols();
    world.sequence(0).q[bad] = kNan;
    world.sequence(0).q[bad + heads.head_dim] = std::numeric_limits<float>::infinity();
    world.Run({{{0, 0, 100}}}, {.unit_tiles = 1});
    const std::vector<uint32_t> found = Bits(world.output(0));
    for (size_t i = 0; i < found.size(); ++i) {
      if (static_cast<int64_t>(i) / heads.q_cols() == 70) {
        ASSERT_TRUE(std::isnan(world.output(0)[i])) << heads.name() << " " << i;
      } else {
        ASSERT_EQ(found[i], clean[i]) << heads.name() << " " << i;
      }
    }
  }
}

TEST(AttentionKernelTest, PlainArithmeticNeverTakesInWhatARowDoesNotSee) {
  const Heads heads{DType::kF32, 2, 1, 8, 50};
  World world(heads, {Sequence(heads, 150, 17, {1, 0, 2})});
  world.Run({{{0, 0, 150}}}, {});
  const std::vector<float> clean = world.output(0);
  std::fill_n(world.sequence(0).v.begin(), 70 * 8, kNan);
  std::fill_n(world.sequence(0).k.begin(), 70 * 8, kNan);
  world.sequence(0).v.back() = kNan;
  world.Run({{{0, 0, 150}}}, {});
  // Position 69 is seen by 69 .. 118, position 149 by itself.
  for (int64_t position = 0; position < 150; ++position) {
    const bool poisoned = position < 119 || position == 149;
    const size_t last = static_cast<size_t>((position + 1) * heads.q_cols() - 1);
    ASSERT_EQ(std::isnan(world.output(0)[last]), poisoned) << position;
    if (poisoned) continue;
    ASSERT_EQ(world.output(0)[last], clean[last]) << position;
  }
}

TEST(AttentionKernelTest, LargeScoresDoNotOverflow) {
  for (const Heads& heads : {Heads{DType::kBF16, 1, 1, 64}, Heads{DType::kF32, 1, 1, 16}}) {
    World world(heads, {Sequence(heads, 100, 19, {1, 0})});
    for (float& value : world.sequence(0).q) value *= 1024.0f;
    world.Run({{{0, 0, 100}}}, {.unit_tiles = 1});
    for (int64_t position = 0; position < 100; ++position) {
      const std::vector<Expectation> expected = Expected(heads, world.sequence(0), position, 0);
      for (int64_t d = 0; d < heads.head_dim; ++d) {
        // Scores of some 10^4 in float32 leave errors of 10^-3 in the exponent.
        ASSERT_NEAR(world.output(0)[position * heads.head_dim + d], expected[d].value, 0.05);
      }
    }
  }
}

TEST(AttentionKernelTest, WeightsAroundTheLeastEqualSoftmax) {
  // Each tile's weights run from 1 to 2^-123, 2^-128 and 2^-136: the least weight but 0 is 2^-125.
  for (const Heads& heads : {Heads{DType::kBF16, 2, 1, 64}, Heads{DType::kF16, 20, 1, 64}}) {
    for (const float q : {7.25f, 7.5f, 8.0f}) {
      World world(heads, {Sequence(heads, 150, 25, {1, 0, 2})});
      Sequence& sequence = world.sequence(0);
      for (size_t i = 0; i < sequence.q.size(); ++i) sequence.q[i] = i % 64 == 0 ? q : 0.0f;
      for (size_t i = 0; i < sequence.k.size(); ++i) {
        sequence.k[i] = i % 64 == 0 ? -1.5f * static_cast<float>(i / 64 % 64) : 0.0f;
      }
      world.Run({{{0, 0, 149}}, {{0, 149, 150}}}, {.unit_tiles = 1});
      ExpectNear(heads, sequence, world.output(0), 7);
    }
  }
}

// Keys and values of many scales: rows of zeros, of subnormals of E4M3 and of all their range.
void SpreadScales(const Heads& heads, std::vector<float>& values, int least, int most) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / heads.head_dim;
    const int exponent = least + static_cast<int>(row * 7 % (most - least + 1));
    values[i] = row % 29 == 3 ? 0.0f : std::ldexp(values[i], exponent - (i % 5 == 0 ? 12 : 0));
  }
  values = Decode(Encode(values, heads.dtype), heads.dtype);
}

// The same sequence in 8 bits, and in 16 as what they hold.
struct BytesAndValues {
  BytesAndValues(const Heads& plain, const Sequence& sequence)
      : bytes(InEightBits(plain), {sequence}), values(plain, {sequence}) {
    for (std::vector<float>* const of : {&values.sequence(0).k, &values.sequence(0).v}) {
      *of = ThroughFp8(*of, plain.head_dim);
    }
  }
  static Heads InEightBits(Heads heads) {
    heads.fp8 = true;
    return heads;
  }

  World bytes, values;
};

TEST(AttentionKernelTest, EightBitsHaveTheBitsOfTheirValues) {
  const Heads cases[] = {
      {DType::kBF16, 4, 2, 64},      {DType::kF16, 3, 1, 64, 70},  {DType::kBF16, 2, 2, 80},
      {DType::kF16, 4, 1, 80, 30},   {DType::kBF16, 3, 1, 96, 90}, {DType::kF16, 2, 1, 96},
      {DType::kBF16, 8, 1, 128, 50}, {DType::kF16, 4, 2, 128},     {DType::kBF16, 2, 1, 256},
      {DType::kF16, 3, 1, 256, 100}, {DType::kF32, 6, 2, 20},      {DType::kF32, 3, 1, 7, 37},
      {DType::kBF16, 2, 2, 8, 64},   {DType::kF16, 5, 1, 112},     {DType::kF32, 2, 1, 300},
      {DType::kF32, 1, 1, 1},        {DType::kF32, 4, 2, 64}};
  for (const Heads& plain : cases) {
    const int64_t tokens = 203;
    Sequence sequence(plain, tokens, 27, {6, 3, 7, 0});
    SpreadScales(plain, sequence.k, -9, 1);
    SpreadScales(plain, sequence.v, -20, 12);
    BytesAndValues worlds(plain, sequence);
    World& bytes = worlds.bytes;
    worlds.values.Run({{{0, 0, tokens}}}, {.unit_tiles = 1000});
    const std::vector<uint32_t> whole = Bits(worlds.values.output(0));
    int64_t turn = 0;
    for (const int64_t chunk : {203, 17, 65}) {
      bytes.Run(
          Chunks(0, tokens, chunk),
          {.unit_tiles = turn++, .grid_blocks = 1 + chunk % 9, .max_rows = turn == 2 ? 16 : 0});
      ASSERT_EQ(Bits(bytes.output(0)), whole) << plain.name() << ", chunks of " << chunk;
    }
  }
}

TEST(AttentionKernelTest, DecodeInEightBitsHasTheBitsOfTheirValues) {
  // Of up to 8 rows, up to 16, and more; the last position's tile is nearly empty, or full.
  const Heads cases[] = {
      {DType::kBF16, 4, 1, 64},       {DType::kF16, 16, 2, 64},   {DType::kF16, 4, 1, 80, 70},
      {DType::kBF16, 9, 1, 80},       {DType::kBF16, 2, 2, 96},   {DType::kF16, 16, 1, 96, 90},
      {DType::kBF16, 8, 1, 128, 100}, {DType::kF16, 5, 1, 128},   {DType::kBF16, 12, 1, 128},
      {DType::kF16, 14, 1, 128, 65},  {DType::kBF16, 20, 1, 128}, {DType::kBF16, 4, 1, 256, 80},
      {DType::kF16, 10, 1, 256}};
  for (const Heads& plain : cases) {
    for (const int64_t tokens : {130, 192}) {
      const Heads fp8 = BytesAndValues::InEightBits(plain);
      Sequence sequence(fp8, tokens, 31, {6, 3, 7});
      SpreadScales(fp8, sequence.k, -9, 1);
      SpreadScales(fp8, sequence.v, -20, 12);
      BytesAndValues worlds(plain, sequence);
      worlds.values.Run({{{0, tokens - 2, tokens}}}, {});
      for (const int64_t unit_tiles : {0, 1}) {
        worlds.bytes.Run({{{0, tokens - 2, tokens - 1}}, {{0, tokens - 1, tokens}}},
                         {.unit_tiles = unit_tiles});
        ASSERT_EQ(Bits(worlds.bytes.output(0)), Bits(worlds.values.output(0)))
            << fp8.name() << ", " << tokens << " tokens, " << unit_tiles;
      }
    }
  }
}

TEST(AttentionKernelTest, WhatIsNoNumberInEightBitsIsWhatItIsInSixteen) {
  // One element of a key, or of two values: of units of up to 8 rows, up to 16, and more.
  for (const Heads& plain :
       {Heads{DType::kBF16, 4, 1, 128}, Heads{DType::kF16, 12, 1, 80}, Heads{DType::kF16, 3, 1, 96},
        Heads{DType::kBF16, 9, 1, 64}, Heads{DType::kBF16, 2, 1, 256}}) {
    const int64_t tokens = 150, dim = plain.head_dim;
    for (const bool is_value : {false, true}) {
      Sequence sequence(plain, tokens, 33, {2, 0, 1});
      if (is_value) {
        sequence.v[37 * dim + dim - 3] = kNan;
        sequence.v[95 * dim + 9] = -std::numeric_limits<float>::infinity();
      } else {
        sequence.k[75 * dim + 41] = kNan;
      }
      BytesAndValues worlds(plain, sequence);
      for (const int64_t position : {63, 80, 149}) {
        for (const int64_t begin : {position, int64_t{30}}) {
          const std::vector<std::vector<Part>> batches{{{0, begin, position + 1}}};
          worlds.values.Run(batches, {});
          worlds.bytes.Run(batches, {.unit_tiles = 1});
          const std::vector<uint32_t> found = Bits(worlds.bytes.output(0));
          ASSERT_EQ(found, Bits(worlds.values.output(0)))
              << plain.name() << (is_value ? " values " : " keys ") << begin << " .. " << position;
          const auto out = [&](int64_t d) {
            return worlds.bytes.output(0)[position * plain.q_cols() + d];
          };
          ASSERT_EQ(std::isnan(out(dim - 3)), is_value || position >= 75);
          ASSERT_EQ(std::isnan(out(9)), position >= (is_value ? 95 : 75));
          ASSERT_EQ(std::isnan(out(10)), !is_value && position >= 75);
        }
      }
    }
  }
}

TEST(AttentionKernelTest, WhatNoKernelTakesIsRefused) {
  AttentionArgs args{.group = 1, .head_dim = 72, .scale = 1.0f, .blocks = 1};
  EXPECT_EQ(LaunchAttention(args, DType::kBF16, true, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(LaunchAttention(args, DType::kI32, false, nullptr), cudaErrorInvalidValue);
  args.head_dim = 64;
  EXPECT_EQ(LaunchAttention(args, DType::kF32, true, nullptr), cudaErrorInvalidValue);
  args.scale = 0.0f;
  EXPECT_EQ(LaunchAttention(args, DType::kBF16, true, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(LoadAttention(DType::kF32, 64, false, true), cudaErrorInvalidValue);
  EXPECT_EQ(LoadAttention(DType::kF16, 65, false, true), cudaErrorInvalidValue);
  EXPECT_EQ(LoadAttention(DType::kI8, 64, false, false), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tlm
