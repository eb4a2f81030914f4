// The work lists of attention as properties: what is covered, in which order it is folded, how even
// the blocks' loads are, and that no list outgrows its bounds.
#include "model/ops/cuda/batch/attention_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using Options = AttentionPlanner::Options;

constexpr ModelShape kLlama8B{.vocab_size = 0, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128};
constexpr AttentionGrid kH200{.mma = true, .blocks = 264, .max_rows = 64};

// The block tables, as far as a plan has to do with them.
constexpr int64_t kTableWidth = 130;
constexpr int64_t kTablesBegin = 64;

// Tokens [position, position + tokens) of the next sequence.
struct Chunk {
  int64_t position;
  int64_t tokens;
};

Batch MakeBatch(const std::vector<Chunk>& runs) {
  Batch batch;
  for (const Chunk& run : runs) {
    for (int64_t t = 0; t < run.tokens; ++t) {
      batch.token_ids.push_back(0);
      batch.positions.push_back(static_cast<int32_t>(run.position + t));
      batch.sequence_of.push_back(static_cast<int32_t>(batch.sequences));
    }
    ++batch.sequences;
  }
  batch.max_blocks = kTableWidth;
  return batch;
}

struct Work {
  std::vector<std::vector<AttentionUnit>> blocks;

  std::vector<AttentionUnit> units() const {
    std::vector<AttentionUnit> all;
    for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
    return all;
  }
  int64_t Load(size_t block) const {
    int64_t tiles = 0;
    for (const AttentionUnit& unit : blocks[block]) tiles += unit.end - unit.begin;
    return tiles;
  }
  int64_t MaxLoad() const {
    int64_t max = 0;
    for (size_t block = 0; block < blocks.size(); ++block) max = std::max(max, Load(block));
    return max;
  }
  double MeanLoad() const {
    int64_t tiles = 0;
    for (size_t block = 0; block < blocks.size(); ++block) tiles += Load(block);
    return static_cast<double>(tiles) / static_cast<double>(blocks.size());
  }
};

absl::StatusOr<Work> MakeWork(AttentionPlanner& planner, const Batch& batch, int64_t window = 0) {
  std::vector<AttentionUnit> memory((planner.work_bytes() + 63) / 64 + 1);
  const std::span<std::byte> bytes{reinterpret_cast<std::byte*>(memory.data()),
                                   planner.work_bytes()};
  std::memset(memory.data(), 0x55, memory.size() * sizeof(memory[0]));
  const absl::StatusOr<size_t> used = planner.Plan(batch, window, bytes, kTablesBegin);
  if (!used.ok()) return used.status();
  EXPECT_LE(*used, planner.work_bytes());
  EXPECT_EQ(memory.back().token, 0x55555555);
  const auto* const first = reinterpret_cast<const int32_t*>(bytes.data());
  const int64_t blocks = planner.grid().blocks;
  const auto* const units =
      reinterpret_cast<const AttentionUnit*>(bytes.data() + AttentionUnitsOffset(blocks));
  EXPECT_EQ(first[0], 0);
  EXPECT_EQ(*used, AttentionUnitsOffset(blocks) +
                       static_cast<size_t>(first[blocks]) * sizeof(AttentionUnit));
  Work work;
  for (int64_t block = 0; block < blocks; ++block) {
    EXPECT_LE(first[block], first[block + 1]);
    work.blocks.emplace_back(units + first[block], units + first[block + 1]);
  }
  return work;
}

// Of a batch that must be one to plan.
Work PlannedWork(AttentionPlanner& planner, const Batch& batch, int64_t window = 0) {
  auto work = MakeWork(planner, batch, window);
  EXPECT_THAT(work, IsOk());
  return work.ok() ? *std::move(work) : Work();
}

BatchLimits LimitsOf(const Batch& batch, int64_t max_context) {
  return {.max_tokens = std::max<int64_t>(batch.tokens(), 1),
          .max_sequences = std::max<int64_t>(batch.sequences, 1),
          .max_logits_rows = 1,
          .max_context = max_context};
}

// Query tile and kv head.
using ItemKey = std::tuple<int32_t, int32_t, int32_t>;

std::map<ItemKey, std::vector<AttentionUnit>> ItemsOf(const Work& work) {
  std::map<ItemKey, std::vector<AttentionUnit>> items;
  for (const AttentionUnit& unit : work.units()) {
    items[{unit.token, unit.head, unit.kv_head}].push_back(unit);
  }
  for (auto& [key, units] : items) {
    std::sort(units.begin(), units.end(),
              [](const AttentionUnit& a, const AttentionUnit& b) { return a.begin < b.begin; });
  }
  return items;
}

// Units of an item abut; the first is the prefix; no two items share records, tickets or rows.
void CheckItems(const Work& work, const AttentionPlanner& planner) {
  std::set<int64_t> partial_rows;
  std::set<int32_t> tickets;
  const AttentionScratch scratch = planner.Scratch(nullptr);
  const int64_t max_partial_rows = (reinterpret_cast<char*>(scratch.partial_values) -
                                    reinterpret_cast<char*>(scratch.partial_stats)) /
                                   8;
  for (const auto& [key, units] : ItemsOf(work)) {
    for (size_t i = 0; i < units.size(); ++i) {
      ASSERT_LT(units[i].begin, units[i].end);
      ASSERT_EQ(units[i].units, static_cast<int32_t>(units.size()));
      ASSERT_EQ(units[i].prefix_end, units[0].end);
      ASSERT_EQ(units[i].item_end, units.back().end);
      ASSERT_EQ(units[i].ticket, units[0].ticket);
      ASSERT_EQ(units[i].partial_row, units[0].partial_row);
      ASSERT_EQ(units[i].rows, units[0].rows);
      if (i == 0) continue;
      ASSERT_EQ(units[i].begin, units[i - 1].end);
    }
    if (units.size() == 1) continue;
    ASSERT_TRUE(tickets.insert(units[0].ticket).second);
    ASSERT_LT((units[0].ticket + 1) * sizeof(uint32_t), planner.ticket_bytes() + 1);
    const int64_t records = 1 + units[0].item_end - units[0].prefix_end;
    for (int64_t row = 0; row < records * units[0].rows; ++row) {
      ASSERT_TRUE(partial_rows.insert(units[0].partial_row + row).second);
      ASSERT_LT(units[0].partial_row + row, max_partial_rows);
    }
  }
}

// Every (token, query head, key tile it sees) is in exactly one unit, at its place.
void CheckCoverage(const Work& work, const Batch& batch, const ModelShape& shape, int64_t window) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int> seen;
  for (const AttentionUnit& unit : work.units()) {
    for (int64_t row = 0; row < unit.rows; ++row) {
      const int64_t token = unit.token + (unit.head + row) / group;
      const int64_t position = unit.position + (unit.head + row) / group;
      const int64_t head = unit.kv_head * group + (unit.head + row) % group;
      ASSERT_EQ(batch.positions[token], position);
      ASSERT_EQ(unit.table, kTablesBegin + batch.sequence_of[token] * kTableWidth);
      for (int64_t tile = unit.begin; tile < unit.end; ++tile) ++seen[{token, head, tile}];
    }
  }
  for (int64_t token = 0; token < batch.tokens(); ++token) {
    const int64_t position = batch.positions[token];
    if (position < 0) continue;
    const int64_t first = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      for (int64_t tile = first / 64; tile <= position / 64; ++tile) {
        ASSERT_EQ((seen[{token, head, tile}]), 1) << token << " " << head << " " << tile;
      }
    }
  }
  for (const auto& [key, count] : seen) {
    ASSERT_EQ(count, 1);
    ASSERT_GE(batch.positions[std::get<0>(key)], 0);
  }
}

TEST(AttentionPlanTest, CoversEveryRowAndTileOnceWhateverTheSplit) {
  std::mt19937 random(1);
  const ModelShape shapes[] = {{0, 8, 2, 128}, {0, 6, 6, 64}, {0, 71, 1, 64}, {0, 5, 1, 20}};
  for (int round = 0; round < 40; ++round) {
    std::vector<Chunk> runs;
    for (int i = static_cast<int>(random() % 6); i >= 0; --i) {
      const int64_t tokens = random() % 2 == 0 ? 1 : 1 + random() % 90;
      runs.push_back({static_cast<int64_t>(random() % 700), tokens});
    }
    Batch batch = MakeBatch(runs);
    for (int64_t padding = random() % 3; padding > 0; --padding) {
      batch.positions.push_back(-1);
      batch.sequence_of.push_back(batch.sequence_of.back());
      batch.token_ids.push_back(0);
    }
    const ModelShape& shape = shapes[round % 4];
    for (const int64_t unit_tiles : {0, 1, 3, 16, 1000}) {
      for (const int64_t window : {0, 1, 64, 100}) {
        const AttentionGrid grid{true, 1 + static_cast<int64_t>(random() % 40),
                                 round % 3 == 0 ? 16 : 64};
        AttentionPlanner planner(LimitsOf(batch, 1024), shape, grid,
                                 Options{.unit_tiles = unit_tiles});
        const Work work = PlannedWork(planner, batch, window);
        CheckItems(work, planner);
        CheckCoverage(work, batch, shape, window);
        for (const AttentionUnit& unit : work.units()) {
          if (unit_tiles > 0 && unit.units > 1) {
            ASSERT_LE(unit.end - unit.begin, unit_tiles);
          }
        }
      }
    }
  }
}

struct Mix {
  const char* name;
  std::vector<Chunk> runs;
};

std::vector<Mix> RealisticMixes() {
  const auto decode = [](int64_t sequences, int64_t position) {
    return std::vector<Chunk>(sequences, Chunk{position, 1});
  };
  std::vector<Mix> mixes = {{"batch 32 at 1k", decode(32, 1024)},
                            {"batch 64 at 1k", decode(64, 1024)},
                            {"batch 256 at 1k", decode(256, 1024)},
                            {"batch 100 at 3k", decode(100, 3000)},
                            {"one sequence at 32k", decode(1, 32767)},
                            {"three at 17k", decode(3, 17000)},
                            {"prefill of 8k", {{0, 8192}}},
                            {"a chunk of 512 at 6k", {{6144, 512}}}};
  std::mt19937 random(7);
  Mix spread{"decode at random positions", {}};
  for (int i = 0; i < 180; ++i) spread.runs.push_back({static_cast<int64_t>(random() % 6000), 1});
  mixes.push_back(spread);
  spread.name = "and a prefill chunk";
  spread.runs.push_back({2048, 1024});
  mixes.push_back(spread);
  spread.name = "and one long sequence";
  spread.runs.push_back({32000, 1});
  mixes.push_back(spread);
  return mixes;
}

TEST(AttentionPlanTest, BlocksAreLoadedWithinTenPercentOfTheMean) {
  for (const Mix& mix : RealisticMixes()) {
    const Batch batch = MakeBatch(mix.runs);
    AttentionPlanner planner(LimitsOf(batch, 32768), kLlama8B, kH200);
    const Work work = PlannedWork(planner, batch);
    EXPECT_LE(static_cast<double>(work.MaxLoad()), 1.10 * work.MeanLoad()) << mix.name;
    EXPECT_LT(work.units().size(), ItemsOf(work).size() + 264) << mix.name;
    CheckItems(work, planner);
  }
}

TEST(AttentionPlanTest, FewTilesAreSpreadOverBlocksOneByOne) {
  const Batch batch = MakeBatch({{1023, 1}});
  AttentionPlanner planner(LimitsOf(batch, 4096), kLlama8B, kH200);
  const Work work = PlannedWork(planner, batch);
  EXPECT_EQ(work.MaxLoad(), 1);
  EXPECT_EQ(work.units().size(), 8u * 16u);
}

TEST(AttentionPlanTest, ItemsStayWholeWhereThatIsEvenEnough) {
  const Batch batch = MakeBatch({{0, 4096}});
  AttentionPlanner planner(LimitsOf(batch, 4096), kLlama8B, kH200);
  const Work work = PlannedWork(planner, batch);
  for (const AttentionUnit& unit : work.units()) EXPECT_EQ(unit.units, 1);
}

TEST(AttentionPlanTest, BlocksTakePartsOfItemsBeforeWholeOnes) {
  const Batch batch = MakeBatch(std::vector<Chunk>(70, Chunk{3000, 1}));
  AttentionPlanner planner(LimitsOf(batch, 4096), kLlama8B, kH200);
  const Work work = PlannedWork(planner, batch);
  int64_t cut = 0;
  for (const auto& block : work.blocks) {
    EXPECT_TRUE(std::is_sorted(block.begin(), block.end(),
                               [](const AttentionUnit& a, const AttentionUnit& b) {
                                 return a.units > 1 && b.units == 1;
                               }));
    for (const AttentionUnit& unit : block) cut += unit.units > 1;
  }
  EXPECT_GT(cut, 0);
}

TEST(AttentionPlanTest, RecordsNeverOutgrowTheirMemory) {
  const Batch batch = MakeBatch(std::vector<Chunk>(5, Chunk{8000, 1}));
  for (const size_t bytes : {size_t{0}, size_t{100} << 10, size_t{1} << 20}) {
    for (const int64_t unit_tiles : {0, 1}) {
      AttentionPlanner planner(LimitsOf(batch, 8192), kLlama8B, kH200,
                               {.unit_tiles = unit_tiles, .max_partial_bytes = bytes});
      EXPECT_LE(planner.scratch_bytes(), bytes + planner.ticket_bytes() + 512);
      const Work work = PlannedWork(planner, batch);
      CheckItems(work, planner);
      CheckCoverage(work, batch, kLlama8B, 0);
    }
  }
}

TEST(AttentionPlanTest, TheLargestBatchFitsItsWork) {
  const BatchLimits limits{
      .max_tokens = 512, .max_sequences = 100, .max_logits_rows = 1, .max_context = 2048};
  // Every sequence has a run that ends with one row in a query tile of its own.
  std::vector<Chunk> runs(100, Chunk{2031, 5});
  runs.back().tokens = 17;
  const Batch batch = MakeBatch(runs);
  ASSERT_EQ(batch.tokens(), 512);
  for (const int64_t unit_tiles : {0, 1}) {
    for (const int64_t max_rows : {4, 16, 64}) {
      AttentionPlanner planner(limits, kLlama8B, {true, 264, max_rows},
                               Options{.unit_tiles = unit_tiles});
      const Work work = PlannedWork(planner, batch);
      CheckItems(work, planner);
    }
  }
}

TEST(AttentionPlanTest, ASmallBatchFitsTheMemoryOfItsTokens) {
  const BatchLimits limits{
      .max_tokens = 512, .max_sequences = 100, .max_logits_rows = 1, .max_context = 2048};
  for (const int64_t tokens : {1, 7, 64}) {
    const Batch batch = MakeBatch(std::vector<Chunk>(tokens, Chunk{2000, 1}));
    AttentionPlanner planner(limits, kLlama8B, kH200);
    const size_t bytes = planner.work_bytes(tokens);
    EXPECT_LT(bytes, planner.work_bytes());
    std::vector<AttentionUnit> memory(bytes / sizeof(AttentionUnit) + 1);
    const auto used =
        planner.Plan(batch, 0, {reinterpret_cast<std::byte*>(memory.data()), bytes}, kTablesBegin);
    ASSERT_THAT(used, IsOk());
    EXPECT_LE(*used, bytes);
  }
  const AttentionPlanner planner(limits, kLlama8B, kH200);
  EXPECT_EQ(planner.work_bytes(1000), planner.work_bytes()) << "of the limits, at the most";
}

TEST(AttentionPlanTest, WindowsLeaveOutTheTilesBeforeThem) {
  const Batch batch = MakeBatch({{1000, 1}, {1000, 32}});
  AttentionPlanner planner(LimitsOf(batch, 2048), {0, 4, 4, 64}, {true, 2, 64});
  const Work work = PlannedWork(planner, batch, 128);
  for (const AttentionUnit& unit : work.units()) EXPECT_GE(unit.begin, (1000 + 1 - 128) / 64);
}

TEST(AttentionPlanTest, BatchesBeyondTheLimitsAreRefused) {
  const ModelShape shape{0, 4, 4, 64};
  const BatchLimits limits{
      .max_tokens = 4, .max_sequences = 2, .max_logits_rows = 1, .max_context = 128};
  AttentionPlanner planner(limits, shape, {true, 2, 64});
  EXPECT_THAT(MakeWork(planner, MakeBatch({{0, 1}, {0, 1}, {0, 1}})),
              IsInvalidArgument("the limit is 8"));
  EXPECT_THAT(MakeWork(planner, MakeBatch({{128, 1}})), IsInvalidArgument("the limit is 128"));
  EXPECT_THAT(MakeWork(planner, MakeBatch({{127, 1}, {0, 1}})), IsOk());
  EXPECT_THAT(MakeWork(planner, Batch()), IsOk());
}

TEST(AttentionPlanTest, TheGridDependsOnModelAndDeviceAlone) {
  struct Case {
    int64_t head_dim;
    DType dtype;
    size_t per_block, per_multiprocessor;
    bool mma;
    int64_t blocks, max_rows;
  };
  constexpr size_t kHopperBlock = 227 << 10, kHopper = 228 << 10;
  const Case cases[] = {
      {128, DType::kBF16, kHopperBlock, kHopper, true, 264, 64},
      {128, DType::kBF16, 163 << 10, 164 << 10, true, 264, 64},  // compute capability 8.0
      {128, DType::kF16, 99 << 10, 100 << 10, true, 132, 64},    // 8.6
      {256, DType::kF16, kHopperBlock, kHopper, true, 132, 32},
      {256, DType::kF16, 99 << 10, 100 << 10, false, 528, 16},
      {128, DType::kBF16, 99 << 10, 100 << 10, true, 132, 64},  // 8.9, 12.0
      {80, DType::kBF16, kHopperBlock, kHopper, true, 264, 64},
      {112, DType::kBF16, kHopperBlock, kHopper, false, 528, 16},
      {128, DType::kF32, kHopperBlock, kHopper, false, 528, 16},
      {1024, DType::kF32, kHopperBlock, kHopper, false, 528, 4}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.head_dim);
    const AttentionGrid grid =
        ChooseAttentionGrid({0, 8, 8, c.head_dim}, c.dtype, 132, c.per_block, c.per_multiprocessor);
    EXPECT_EQ(grid.mma, c.mma);
    EXPECT_EQ(grid.blocks, c.blocks);
    EXPECT_EQ(grid.max_rows, c.max_rows);
  }
}

TEST(AttentionPlanTest, UnitsKnowThePositionsOfTheirRows) {
  // The last sequence has a gap, as after tokens that were dropped.
  Batch batch = MakeBatch({{0, 100}, {37, 5}, {1000, 33}, {3, 4}});
  batch.positions[batch.positions.size() - 2] += 60;
  batch.positions[batch.positions.size() - 1] += 60;
  constexpr int64_t kGroup = kLlama8B.num_heads / kLlama8B.num_kv_heads;
  BatchLimits limits = LimitsOf(batch, 4096);
  ++limits.max_sequences;  // what follows a gap counts as one
  AttentionPlanner planner(limits, kLlama8B, kH200);
  const Work work = MakeWork(planner, batch).value();
  int64_t rows = 0;
  for (const AttentionUnit& unit : work.units()) {
    if (unit.end == unit.prefix_end) rows += unit.rows;
    for (int64_t row = 0; row < unit.rows; ++row) {
      const auto offset = (unit.head + row) / kGroup;
      const auto token = static_cast<size_t>(unit.token + offset);
      ASSERT_EQ(batch.positions[token], unit.position + offset);
      ASSERT_EQ(batch.sequence_of[token], batch.sequence_of[unit.token]);
    }
    ASSERT_EQ(unit.last_position, unit.position + (unit.head + unit.rows - 1) / kGroup);
    ASSERT_EQ(unit.item_end, unit.last_position / kAttentionTile + 1);
    // What follows a gap, too: where the sequence's first token in the batch stands.
    constexpr int32_t kStored[] = {0, 37, 1000, 3};
    ASSERT_EQ(unit.stored, kStored[batch.sequence_of[unit.token]]);
  }
  EXPECT_EQ(rows, batch.tokens() * kLlama8B.num_heads);
}

TEST(AttentionPlanTest, AByteLessOfSharedMemoryIsTooLittle) {
  const size_t bytes = MmaFp8AttentionSharedBytes(128);
  const auto grid = [](size_t per_block, size_t per_multiprocessor) {
    return ChooseAttentionGrid({0, 8, 8, 128}, DType::kBF16, 10, per_block, per_multiprocessor);
  };
  EXPECT_TRUE(grid(bytes, 228 << 10).mma);
  EXPECT_FALSE(grid(bytes - 1, 228 << 10).mma);
  EXPECT_EQ(grid(bytes, 2 * (bytes + 1024)).blocks, 20);
  EXPECT_EQ(grid(bytes, 2 * (bytes + 1024) - 1).blocks, 10);
}

TEST(AttentionPlanTest, TheGridsBlocksFitTheirMultiprocessors) {
  // 8.0; 8.6, 8.9, 12.0, 12.1; 9.0, 10.0, 10.3.
  for (const size_t shared : {164 << 10, 100 << 10, 228 << 10}) {
    const size_t per_block = shared - 1024;
    for (int64_t head_dim = 8; head_dim <= 1024; head_dim += 8) {
      SCOPED_TRACE(testing::Message() << "heads of " << head_dim << ", " << shared << " bytes");
      // Of the kernel that has more.
      const size_t bytes = MmaFp8AttentionSharedBytes(head_dim);
      const AttentionGrid grid =
          ChooseAttentionGrid({0, 8, 8, head_dim}, DType::kBF16, 10, per_block, shared);
      EXPECT_EQ(grid.mma, HasMmaAttention(head_dim) && bytes <= per_block);
      if (!grid.mma) continue;
      EXPECT_LE(grid.blocks / 10 * (bytes + 1024), shared);
      EXPECT_TRUE(grid.blocks == 20 || 2 * (bytes + 1024) > shared);
    }
  }
}

}  // namespace
}  // namespace tlm
