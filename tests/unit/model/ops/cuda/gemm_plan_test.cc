#include "model/ops/cuda/gemm/gemm_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"

namespace tlm {
namespace {

constexpr GemmDevice kH200{.multiprocessors = 132, .shared_bytes_per_multiprocessor = 228 << 10};
constexpr GemmDevice kA100{.multiprocessors = 108, .shared_bytes_per_multiprocessor = 164 << 10};
constexpr GemmDevice kA10{.multiprocessors = 72, .shared_bytes_per_multiprocessor = 100 << 10};
constexpr GemmDevice kL40S{.multiprocessors = 142, .shared_bytes_per_multiprocessor = 100 << 10};
constexpr GemmDevice kB200{.multiprocessors = 148, .shared_bytes_per_multiprocessor = 228 << 10};
constexpr GemmDevice kRtx5090{.multiprocessors = 170, .shared_bytes_per_multiprocessor = 100 << 10};
constexpr GemmDevice kOne{.multiprocessors = 1, .shared_bytes_per_multiprocessor = 100 << 10};
constexpr GemmDevice kDevices[] = {kH200, kA100, kA10, kL40S, kB200, kRtx5090, kOne};
// What a block may have of shared memory on the devices that have least: 8.6, 8.9, 12.0, 12.1.
constexpr size_t kMinSharedBytes = 99 << 10;

constexpr int64_t kRows[] = {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 96, 128, 129, 1000};
constexpr int64_t kOutputs[] = {1, 2, 8, 16, 24, 40, 1000, 1024, 4096, 6144, 19456, 24576, 151936};

int TileRows(const GemmPlan& plan) {
  return plan.method == GemmMethod::kSimt ? kSimtTiles[plan.tile].rows : kMmaTiles[plan.tile].rows;
}
int TileTokens(const GemmPlan& plan) {
  return plan.method == GemmMethod::kSimt ? kSimtTiles[plan.tile].tokens
                                          : kMmaTiles[plan.tile].tokens;
}

// Calls fn(shape, plan, device) for plans of own kernels.
template <typename Fn>
void ForEachPlan(Fn fn) {
  for (const GemmDevice& device : kDevices) {
    for (const int64_t m : kRows) {
      for (const int64_t n : kOutputs) {
        for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
          for (const bool gated : {false, true}) {
            if (gated && n % 2 != 0) continue;
            const GemmShape shape{.m = m, .n = n, .k = 256, .dtype = dtype, .gated = gated};
            SCOPED_TRACE(testing::Message()
                         << "m " << m << " n " << n << " " << DTypeName(dtype)
                         << (gated ? " gated" : "") << " on " << device.multiprocessors);
            fn(shape, PlanGemm(shape, device), device);
          }
        }
      }
    }
  }
}

TEST(GemmPlanTest, TilesCoverEveryOutputOnce) {
  ForEachPlan([](const GemmShape& shape, const GemmPlan& plan, const GemmDevice&) {
    EXPECT_GE(plan.row_tiles * TileRows(plan), shape.n);
    EXPECT_LT((plan.row_tiles - 1) * TileRows(plan), shape.n);
    EXPECT_GE(plan.token_tiles * TileTokens(plan), shape.m);
    EXPECT_LT((plan.token_tiles - 1) * TileTokens(plan), shape.m);
  });
}

TEST(GemmPlanTest, BlocksShareTheTilesEvenly) {
  ForEachPlan([](const GemmShape&, const GemmPlan& plan, const GemmDevice& device) {
    const int64_t tiles = plan.row_tiles * plan.token_tiles;
    ASSERT_GT(plan.grid, 0);
    ASSERT_LE(plan.grid, tiles);
    if (plan.method == GemmMethod::kSimt) {
      EXPECT_EQ(plan.grid, tiles);
      return;
    }
    // Block b takes tiles b, b + grid, ...: rounds of them, or one fewer.
    const int64_t rounds = (tiles + plan.grid - 1) / plan.grid;
    EXPECT_LE(plan.grid, 2 * device.multiprocessors);
    EXPECT_GT(tiles, (rounds - 1) * plan.grid);
    // No grid that fits needs fewer rounds.
    const auto fitting = std::clamp<int64_t>(
        static_cast<int64_t>(device.shared_bytes_per_multiprocessor / (plan.shared_bytes + 1024)),
        1, 2);
    const int64_t most = fitting * device.multiprocessors;
    EXPECT_EQ(rounds, (tiles + most - 1) / most);
    // Blocks go to the multiprocessors one by one, and once more.
    std::vector<int64_t> loads(device.multiprocessors);
    for (int64_t block = 0; block < plan.grid; ++block) {
      loads[block % device.multiprocessors] += CeilDiv(tiles - block, plan.grid);
    }
    EXPECT_EQ(*std::max_element(loads.begin(), loads.end()),
              CeilDiv(tiles, device.multiprocessors));
  });
}

TEST(GemmPlanTest, SharedMemoryLeavesRoomForTheNextKernel) {
  ForEachPlan([](const GemmShape& shape, const GemmPlan& plan, const GemmDevice&) {
    EXPECT_GT(plan.shared_bytes, 0u);
    // Three blocks of an H200's 228 KiB, or two; one on every device.
    EXPECT_LE(plan.shared_bytes, shape.m > 32 ? kMinSharedBytes : 75u << 10);
    EXPECT_EQ(plan.threads, kGemmThreads);
  });
}

// All are loaded at start, and one that does not fit ends it.
TEST(GemmPlanTest, EveryTileFitsABlockOfEveryDevice) {
  for (const MmaTile& tile : kMmaTiles) EXPECT_LE(tile.shared_bytes(), kMinSharedBytes);
  for (const SimtTile& tile : kSimtTiles) EXPECT_LE(tile.shared_bytes(), kMinSharedBytes);
}

TEST(GemmPlanTest, TheKindOfKernelDependsOnTheRowsOnlyWhereBitsAgree) {
  ForEachPlan([](const GemmShape& shape, const GemmPlan& plan, const GemmDevice&) {
    const bool tensor_cores = UsesTensorCores(shape.n, shape.k, shape.dtype);
    EXPECT_EQ(plan.method == GemmMethod::kSimt, !tensor_cores);
    if (tensor_cores) {
      EXPECT_EQ(plan.method == GemmMethod::kTiled, plan.tile == kTiledMmaTile);
      if (shape.m <= 64) {
        EXPECT_EQ(plan.method, GemmMethod::kSkinny);
      }
      if (shape.m <= kSkinnyTokens) {
        EXPECT_EQ(plan.token_tiles, 1);
      }
    }
  });
}

TEST(GemmPlanTest, OnlyMultiplesOf8In16BitsUseMatrixUnits) {
  EXPECT_TRUE(UsesTensorCores(8, 8, DType::kBF16));
  EXPECT_TRUE(UsesTensorCores(4096, 24, DType::kF16));
  EXPECT_FALSE(UsesTensorCores(4096, 4096, DType::kF32));
  EXPECT_FALSE(UsesTensorCores(4095, 4096, DType::kBF16));
  EXPECT_FALSE(UsesTensorCores(4096, 4092, DType::kBF16));
}

TEST(GemmPlanTest, GatedTilesHoldWholeGroups) {
  ForEachPlan([](const GemmShape& shape, const GemmPlan& plan, const GemmDevice&) {
    if (shape.gated) {
      EXPECT_EQ(TileRows(plan) % 32, 0);
    }
  });
}

TEST(GemmPlanTest, FewOutputsGetNarrowTiles) {
  const auto rows_of_tile = [](int64_t m, int64_t n, const GemmDevice& device) {
    return kMmaTiles[PlanGemm({.m = m, .n = n, .k = 1024}, device).tile].rows;
  };
  EXPECT_EQ(rows_of_tile(1, 1024, kH200), 16);
  EXPECT_EQ(rows_of_tile(1, 2048, kH200), 16);
  EXPECT_EQ(rows_of_tile(1, 4096, kH200), 32);
  EXPECT_EQ(rows_of_tile(64, 4096, kH200), 32);
  EXPECT_EQ(rows_of_tile(64, 24576, kH200), 64);
}

TEST(GemmPlanTest, TokensOfATileFollowTheRows) {
  const auto tokens_of_tile = [](int64_t m) {
    return kMmaTiles[PlanGemm({.m = m, .n = 4096, .k = 1024}, kH200).tile].tokens;
  };
  EXPECT_EQ(tokens_of_tile(1), 8);
  EXPECT_EQ(tokens_of_tile(8), 8);
  EXPECT_EQ(tokens_of_tile(9), 16);
  EXPECT_EQ(tokens_of_tile(17), 32);
  EXPECT_EQ(tokens_of_tile(33), 64);
  EXPECT_EQ(tokens_of_tile(65), 64);
  EXPECT_EQ(tokens_of_tile(256), 64);
  EXPECT_EQ(tokens_of_tile(512), 128);
}

// o and down of a model of 8 billion parameters, without a library.
TEST(GemmPlanTest, NoMultiprocessorIsIdleBesideSomeHundredRows) {
  for (int64_t m = 65; m <= 256; ++m) {
    const GemmPlan plan = PlanGemm({.m = m, .n = 4096, .k = 4096}, kH200);
    EXPECT_GE(plan.grid * 10, kH200.multiprocessors * 9) << m;
  }
}

// Bytes the busiest multiprocessor reads for an element of k, in elements.
int64_t BusiestBytes(const GemmPlan& plan, const GemmDevice& device) {
  const int64_t tiles = int64_t{plan.row_tiles} * plan.token_tiles;
  return CeilDiv(tiles, device.multiprocessors) * (TileRows(plan) + TileTokens(plan));
}

TEST(GemmPlanTest, NoMultiprocessorReadsMoreThanWithAnotherTile) {
  for (const GemmDevice& device : kDevices) {
    for (const int64_t n : {8, 1024, 2560, 4096, 6144, 24576, 151936}) {
      for (const int64_t m : {33, 48, 64, 65, 100, 128, 200, 256, 300, 512, 2048}) {
        const int64_t read = BusiestBytes(PlanGemm({.m = m, .n = n, .k = 4096}, device), device);
        for (const MmaTile& tile : kMmaTiles) {
          if (tile.tokens < 32) continue;
          const int64_t tiles = CeilDiv(n, tile.rows) * CeilDiv(m, tile.tokens);
          EXPECT_LE(read, CeilDiv(tiles, device.multiprocessors) * (tile.rows + tile.tokens))
              << n << " x " << m << " on " << device.multiprocessors << " of " << tile.rows << " x "
              << tile.tokens;
        }
      }
    }
  }
  // At batch 128 o and down read half as much there; wide products have work for all anyway.
  EXPECT_EQ(BusiestBytes(PlanGemm({.m = 128, .n = 4096, .k = 4096}, kH200), kH200), 128);
  EXPECT_EQ(PlanGemm({.m = 128, .n = 24576, .k = 4096}, kH200).method, GemmMethod::kTiled);
  EXPECT_EQ(PlanGemm({.m = 2048, .n = 4096, .k = 4096}, kH200).method, GemmMethod::kTiled);
}

// 33 to 64 rows: between HBM's bound and the largest tile's, bytes through L2 decide.
TEST(GemmPlanTest, TilesOf33To64RowsReadLeastThroughL2) {
  struct Product {
    const char* name;
    int64_t n, k;
    int rows, tokens, grid;
  };
  for (const Product& product : {
           Product{"8B qkv", 6144, 4096, 64, 64, 96},
           Product{"8B o", 4096, 4096, 32, 64, 128},
           Product{"8B gate_up", 24576, 4096, 64, 64, 264},
           Product{"8B down", 4096, 12288, 32, 64, 128},
           Product{"8B head", 151936, 4096, 64, 64, 264},
           Product{"4B qkv", 6144, 2560, 64, 64, 96},
           Product{"4B o", 2560, 4096, 32, 64, 80},
           Product{"4B gate_up", 19456, 2560, 64, 64, 264},
           Product{"4B down", 2560, 9728, 32, 64, 80},
           Product{"0.6B qkv", 4096, 1024, 32, 64, 128},
           // Few outputs: twice as many blocks, each with two thirds of the bytes.
           Product{"0.6B o", 1024, 2048, 32, 32, 64},
           Product{"0.6B gate_up", 6144, 1024, 64, 64, 96},
           Product{"0.6B down", 1024, 3072, 32, 32, 64},
       }) {
    for (const int64_t m : {33, 48, 64}) {
      SCOPED_TRACE(testing::Message() << product.name << " of " << m);
      const GemmPlan plan = PlanGemm({.m = m, .n = product.n, .k = product.k}, kH200);
      EXPECT_EQ(TileRows(plan), product.rows);
      EXPECT_EQ(TileTokens(plan), product.tokens);
      EXPECT_EQ(plan.grid, product.grid);
    }
  }
}

// The requests that hide 1 us of latency at 4.3 TB/s, for a model of 8 billion parameters.
TEST(GemmPlanTest, EnoughBytesAreUnderWayForOneToken) {
  struct Product {
    int64_t n, k;
  };
  for (const Product product : {Product{6144, 4096}, Product{4096, 4096}, Product{24576, 4096},
                                Product{4096, 12288}, Product{151936, 4096}}) {
    const GemmPlan plan = PlanGemm({.m = 1, .n = product.n, .k = product.k}, kH200);
    const MmaTile& tile = kMmaTiles[plan.tile];
    const int64_t weights_under_way =
        int64_t{plan.grid} * (tile.stages - 1) * tile.rows * tile.stage_k * 2;
    EXPECT_GE(weights_under_way, 4'300'000) << product.n << " x " << product.k;
  }
}

TEST(GemmPlanTest, OneTokenPrefetchesWhereTheRingDoesNotHoldAll) {
  struct Product {
    int64_t m, n, k;
    int bytes;
  };
  for (const Product product : {
           Product{1, 24576, 4096, 64 << 10},  // 256 blocks: 16 MiB
           Product{1, 4096, 4096, 128 << 10},  // 128 blocks
           Product{8, 4096, 4096, 128 << 10},
           Product{1, 8, 4096, 16 * 4096 * 2},       // the tile
           Product{1, 8, 65536, kMaxPrefetchBytes},  // of 2 MiB
           Product{1, 8, 1416, 16 * 1416 * 2},
           Product{1, 8, 1408, 0},  // the ring holds the rows
           Product{1, 8, 8, 0},
           Product{9, 4096, 4096, 0},  // x is as much to read
           Product{65, 4096, 4096, 0},
       }) {
    const GemmPlan plan = PlanGemm({.m = product.m, .n = product.n, .k = product.k}, kH200);
    EXPECT_EQ(plan.prefetch_bytes, product.bytes)
        << product.m << " x " << product.n << " x " << product.k;
  }
  ForEachPlan([](const GemmShape&, const GemmPlan& plan, const GemmDevice&) {
    EXPECT_EQ(plan.prefetch_bytes % 16, 0);
    EXPECT_LE(int64_t{plan.grid} * plan.prefetch_bytes, 16 << 20);
    EXPECT_LT(plan.prefetch_bytes, 1 << 20);  // one piece
  });
}

}  // namespace
}  // namespace tlm
