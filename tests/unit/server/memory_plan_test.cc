#include "server/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/ops.h"
#include "model/transformer_lm/transformer_lm.h"

namespace tlm {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 1000;
  config.context_length = 1024;
  config.d_model = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 4;
  config.head_dim = 16;
  config.d_ff = 128;
  return config;
}

ServerOptions Options() {
  ServerOptions options;
  options.max_batch_tokens = 512;
  options.max_running_requests = 8;
  return options;
}

absl::StatusOr<MemoryPlan> Plan(const ServerOptions& options, const WeightBytes& weights,
                                uint64_t available, uint64_t total = 4 * kGib) {
  DeviceInfo device;
  device.host_addressable = true;
  device.total_bytes = total;
  return PlanMemory(options, Config(), weights, TransformerLM::KvShapeFor(Config(), DType::kF32),
                    device, available);
}

constexpr int64_t kContextBlocks = 1024 / kBlockTokens;
constexpr uint64_t kBlockBytes = uint64_t{2} * 2 * 64 * kBlockTokens * sizeof(float);

TEST(PlanMemoryTest, HoldsFullContextsOfAllRequestsWhereThereIsRoom) {
  const absl::StatusOr<MemoryPlan> plan = Plan(Options(), {}, kGib);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv_blocks, 8 * kContextBlocks);
  EXPECT_EQ(plan->batch.max_context, 1024);
  EXPECT_EQ(plan->batch.max_sequences, 8);
}

TEST(PlanMemoryTest, TakesAQuarterOfTheMemoryAtMost) {
  const absl::StatusOr<MemoryPlan> plan = Plan(Options(), {}, kGib, 4 * 20 * kBlockBytes);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv_blocks, 20);
}

TEST(PlanMemoryTest, LeavesRoomForTheWeights) {
  const uint64_t left = 96 * kBlockBytes;  // for KV blocks and intermediate results
  const absl::StatusOr<MemoryPlan> plan = Plan(Options(), {.device = kGib - left}, kGib);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->kv_blocks, kContextBlocks);
  EXPECT_LT(plan->kv_blocks, 96);
}

TEST(PlanMemoryTest, RefusesWhatDoesNotFitWithEveryFigure) {
  const absl::Status status =
      Plan(Options(), {.host = 7 * kGib, .device = 5 * kGib}, kGib).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  for (const uint64_t figure : {12 * kGib, kGib, 5 * kGib, 7 * kGib}) {
    EXPECT_THAT(message, HasSubstr(std::to_string(figure)));
  }
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(PlanMemoryTest, OneContextMustFit) {
  constexpr uint64_t kAvailable = 72 * kBlockBytes;  // 60 of them for intermediate results
  EXPECT_EQ(Plan(Options(), {}, kAvailable).status().code(), absl::StatusCode::kResourceExhausted);
  ServerOptions options = Options();
  options.max_context = 64;
  const absl::StatusOr<MemoryPlan> plan = Plan(options, {}, kAvailable);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE(plan->kv_blocks, 1);
}

TEST(PlanMemoryTest, TakesTheKvCacheThatIsAskedFor) {
  ServerOptions options = Options();
  options.kv_cache_bytes = static_cast<int64_t>(100 * kBlockBytes);
  EXPECT_EQ(Plan(options, {}, kGib)->kv_blocks, 100);
  options.kv_cache_bytes = static_cast<int64_t>(kBlockBytes);
  const absl::Status status = Plan(options, {}, kGib).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--kv_cache_bytes"));
  options.kv_cache_bytes = static_cast<int64_t>(2 * kGib);
  EXPECT_EQ(Plan(options, {}, kGib).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanMemoryTest, RefusesAContextTheModelHasNot) {
  ServerOptions options = Options();
  options.max_context = 1025;
  EXPECT_THAT(std::string(Plan(options, {}, kGib).status().message()), HasSubstr("1024"));
  options.max_context = 1;
  EXPECT_FALSE(Plan(options, {}, kGib).ok());
}

}  // namespace
}  // namespace tlm
