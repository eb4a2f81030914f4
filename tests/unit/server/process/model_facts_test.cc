#include "server/process/model_facts.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(FiguresOfTest, AnIdleEngineMakesNoProgressAndNeedsNone) {
  EngineStats stats;
  stats.last_progress = absl::FromUnixSeconds(100);
  EXPECT_EQ(FiguresOf(stats, absl::FromUnixSeconds(160)).progress_age_seconds, 0);
  stats.busy = true;
  EXPECT_EQ(FiguresOf(stats, absl::FromUnixSeconds(160)).progress_age_seconds, 60);
}

TEST(FiguresOfTest, AClockThatWasSetBackGivesNoNegativeAge) {
  EngineStats stats;
  stats.busy = true;
  stats.last_progress = absl::FromUnixSeconds(100);
  EXPECT_EQ(FiguresOf(stats, absl::FromUnixSeconds(50)).progress_age_seconds, 0);
}

TEST(FactsOfTest, NamesTheElementTypeOfKeysAndValues) {
  ServedModel served;
  served.memory.kv_dtype = DType::kF32;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "float32");
  served.memory.kv_dtype = DType::kBF16;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "bfloat16");
  served.memory.kv_dtype = DType::kF16;
  EXPECT_EQ(FactsOf(served).kv_cache_dtype, "float16");
}

}  // namespace
}  // namespace tlm
