#include "server/loading/memory_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/message_text.h"
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
  options.engine.max_batch_tokens = 512;
  options.engine.max_running_requests = 8;
  return options;
}

constexpr int64_t kContextBlocks = 1024 / kBlockTokens;
constexpr uint64_t kBlockBytes = uint64_t{2} * 2 * 64 * kBlockTokens * sizeof(float);
constexpr uint64_t kWorkspace = 60 * kBlockBytes;

MemoryNeeds Needs(const PackingPlan& weights) {
  return {.weights = weights,
          .workspace = [](const BatchLimits&) { return kWorkspace; },
          .kv = TransformerLM::KvShapeFor(Config(), DType::kF32)};
}

absl::StatusOr<MemoryPlan> Plan(const ServerOptions& options, const PackingPlan& weights,
                                uint64_t available, uint64_t total = 4 * kGib,
                                const DraftNeeds* draft = nullptr) {
  DeviceInfo device;
  device.host_addressable = true;
  device.total_bytes = total;
  return PlanMemory(options, Config(), Needs(weights), device, available, draft);
}

absl::StatusOr<MemoryPlan> PlanGpu(const ServerOptions& options, const PackingPlan& weights,
                                   uint64_t free, uint64_t host = kGib) {
  DeviceInfo device;
  device.total_bytes = 10 * kGib;
  device.free_bytes = free;
  return PlanMemory(options, Config(), Needs(weights), device, host);
}

TEST(PlanMemoryTest, HoldsFullContextsOfAllRequestsWhereThereIsRoom) {
  const MemoryPlan plan = Plan(Options(), {}, kGib).value();
  EXPECT_EQ(plan.kv_blocks, 8 * kContextBlocks);
  EXPECT_EQ(plan.batch.max_context, 1024);
  EXPECT_EQ(plan.batch.max_sequences, 8);
}

TEST(PlanMemoryTest, TakesAQuarterOfTheMemoryAtMost) {
  EXPECT_EQ(Plan(Options(), {}, kGib, 4 * 20 * kBlockBytes)->kv_blocks, 20);
}

TEST(PlanMemoryTest, LeavesRoomForTheWeights) {
  const uint64_t left = 96 * kBlockBytes;  // for KV blocks and intermediate results
  const MemoryPlan plan = Plan(Options(), {.device = kGib - left}, kGib).value();
  EXPECT_GT(plan.kv_blocks, kContextBlocks);
  EXPECT_LT(plan.kv_blocks, 96);
}

TEST(PlanMemoryTest, RefusesWhatDoesNotFitWithEveryFigure) {
  // The weights' copy is gone before there are keys and values: the larger of the two counts.
  const struct {
    PackingPlan weights;
    std::string figures;
  } kCases[] = {
      {{.host = 7 * kGib, .device = 5 * kGib},
       "needs 12.00 GiB of memory, 1.00 GiB are available: 5.00 GiB for weights, 7.00 GiB to make "
       "them; --"},
      {{.host = 1, .device = kGib},
       fmt::format("needs {} of memory, 1.00 GiB are available: 1.00 GiB for weights, {} for keys "
                   "and values of 1024 tokens, {} for intermediate results; --",
                   HumanBytes(kGib + kWorkspace + kContextBlocks * kBlockBytes),
                   HumanBytes(kContextBlocks * kBlockBytes), HumanBytes(kWorkspace))},
  };
  for (const auto& [weights, figures] : kCases) {
    const absl::Status status = Plan(Options(), weights, kGib).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(figures));
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  }
}

TEST(PlanMemoryTest, OneContextMustFit) {
  constexpr uint64_t kAvailable = kWorkspace + 12 * kBlockBytes;
  EXPECT_EQ(Plan(Options(), {}, kAvailable).status().code(), absl::StatusCode::kResourceExhausted);
  ServerOptions options = Options();
  options.max_context = 64;
  const MemoryPlan plan = Plan(options, {}, kAvailable).value();
  EXPECT_GE(plan.kv_blocks, 1);
}

TEST(PlanMemoryTest, TakesTheKvCacheThatIsAskedFor) {
  ServerOptions options = Options();
  options.kv_cache_bytes = static_cast<int64_t>(100 * kBlockBytes);
  EXPECT_EQ(Plan(options, {}, kGib)->kv_blocks, 100);
  options.kv_cache_bytes = static_cast<int64_t>(kBlockBytes);
  const absl::Status status = Plan(options, {}, kGib).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            fmt::format("--kv_cache_bytes is {}, a context of 1024 tokens needs {}: raise it to "
                        "{}MiB or lower --max_context",
                        HumanBytes(kBlockBytes), HumanBytes(kContextBlocks * kBlockBytes),
                        ((kContextBlocks * kBlockBytes - 1) >> 20) + 1));
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

// A draft model of one layer: half the keys and values.
DraftNeeds Draft(int64_t context_length, uint64_t weights = 0) {
  ModelConfig config = Config();
  config.num_layers = 1;
  return {.memory = {.weights = {.device = weights},
                     .workspace = [](const BatchLimits&) { return kWorkspace / 2; },
                     .kv = TransformerLM::KvShapeFor(config, DType::kF32)},
          .context_length = context_length};
}

absl::StatusOr<MemoryPlan> PlanWith(const DraftNeeds& draft, const ServerOptions& options,
                                    uint64_t available, uint64_t total = 4 * kGib) {
  return Plan(options, {}, available, total, &draft);
}

TEST(PlanDraftMemoryTest, HoldsAsManyTokensAsTheModel) {
  const DraftNeeds draft = Draft(1024);
  const MemoryPlan plan = PlanWith(draft, Options(), kGib).value();
  EXPECT_EQ(plan.kv_blocks, 8 * kContextBlocks);
  const MemoryPlan its = PlanDraft(plan, draft);
  EXPECT_EQ(its.kv_blocks, 8 * kContextBlocks);
  EXPECT_EQ(its.kv_dtype, DType::kF32);
  EXPECT_EQ(its.batch.max_context, 1024);
  EXPECT_EQ(its.batch.max_tokens, 512);
  EXPECT_EQ(its.batch.max_sequences, 8);
  EXPECT_EQ(its.batch.max_logits_rows, 8);
}

TEST(PlanDraftMemoryTest, HoldsNoMoreThanItsContextHasAUseFor) {
  const DraftNeeds draft = Draft(100);
  const MemoryPlan plan = PlanWith(draft, Options(), kGib).value();
  EXPECT_EQ(plan.batch.max_context, 1024);
  EXPECT_EQ(PlanDraft(plan, draft).batch.max_context, 100);
  EXPECT_EQ(PlanDraft(plan, draft).kv_blocks, 8 * 2);
  // Nor than the model's.
  ServerOptions options = Options();
  options.max_context = 64;
  const DraftNeeds longer = Draft(4096);
  EXPECT_EQ(PlanDraft(*PlanWith(longer, options, kGib), longer).batch.max_context, 64);
}

TEST(PlanDraftMemoryTest, BothShareTheMemoryOfKeysAndValues) {
  EXPECT_EQ(PlanWith(Draft(1024), Options(), kGib, 4 * 30 * kBlockBytes)->kv_blocks, 20);
  ServerOptions options = Options();
  options.kv_cache_bytes = static_cast<int64_t>(90 * kBlockBytes);
  EXPECT_EQ(PlanWith(Draft(1024), options, kGib)->kv_blocks, 60);
  options.kv_cache_bytes = static_cast<int64_t>(kContextBlocks * kBlockBytes);
  EXPECT_TRUE(Plan(options, {}, kGib).ok());
  EXPECT_THAT(std::string(PlanWith(Draft(1024), options, kGib).status().message()),
              HasSubstr("needs " + HumanBytes(kContextBlocks * kBlockBytes * 3 / 2)));
}

TEST(PlanDraftMemoryTest, MustFitWithTheModel) {
  const uint64_t weights = kGib + 77;
  const uint64_t least = weights + kWorkspace * 3 / 2 + kContextBlocks * kBlockBytes * 3 / 2;
  EXPECT_TRUE(PlanWith(Draft(1024, weights), Options(), least).ok());
  const absl::Status status = PlanWith(Draft(1024, weights), Options(), least - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(HumanBytes(weights) + " of them the draft model's"));
}

constexpr uint64_t kReserve = 10 * kGib / 32;  // of the 10 GiB of PlanGpu's device

// Of what others have left alone, at most the fraction of all.
TEST(PlanGpuMemoryTest, KeysAndValuesTakeWhatTheFractionAndOthersLeave) {
  const uint64_t weights = 3 * kGib;
  for (const auto& [fraction, free, left] :
       {std::tuple(0.5, 9 * kGib, 2 * kGib), std::tuple(1.0, 4 * kGib, kGib)}) {
    ServerOptions options = Options();
    options.gpu_memory_fraction = fraction;
    EXPECT_EQ(PlanGpu(options, {.device = weights}, free)->kv_blocks,
              static_cast<int64_t>((left - kWorkspace - kReserve) / kBlockBytes));
  }
}

TEST(PlanGpuMemoryTest, TakesTheKvCacheThatIsAskedFor) {
  ServerOptions options = Options();
  options.kv_cache_bytes = static_cast<int64_t>(100 * kBlockBytes);
  EXPECT_EQ(PlanGpu(options, {}, 9 * kGib)->kv_blocks, 100);
  options.kv_cache_bytes = static_cast<int64_t>(9 * kGib);
  EXPECT_EQ(PlanGpu(options, {}, 9 * kGib).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanGpuMemoryTest, RefusesWhatDoesNotFitWithEveryFigure) {
  const uint64_t weights = 8 * kGib + 123;
  const absl::Status status = PlanGpu(Options(), {.device = weights}, 8 * kGib).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  const uint64_t kv = kContextBlocks * kBlockBytes;
  for (const uint64_t figure : {weights, kWorkspace, kv, kReserve, 10 * kGib, 8 * kGib,
                                weights + kWorkspace + kv + kReserve}) {
    EXPECT_THAT(message, HasSubstr(HumanBytes(figure)));
  }
  EXPECT_THAT(message, HasSubstr("--gpu_memory_fraction"));
}

TEST(PlanGpuMemoryTest, OneContextMustFit) {
  ServerOptions options = Options();
  options.gpu_memory_fraction = 1;
  const uint64_t others = kReserve + kWorkspace + kContextBlocks * kBlockBytes;
  EXPECT_EQ(PlanGpu(options, {}, others)->kv_blocks, kContextBlocks);
  EXPECT_FALSE(PlanGpu(options, {}, others - 1).ok());
}

TEST(PlanGpuMemoryTest, DrawnWeightsMustFitTheHost) {
  EXPECT_TRUE(PlanGpu(Options(), {.host = kGib, .device = kGib}, 9 * kGib, kGib).ok());
  const absl::Status status =
      PlanGpu(Options(), {.host = kGib + 1, .device = kGib}, 9 * kGib, kGib).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("making the weights"));
}

TEST(PlanGpuMemoryTest, TheWorkspaceIsThatOfTheBatch) {
  ServerOptions options = Options();
  MemoryNeeds needs = Needs({});
  BatchLimits asked;
  needs.workspace = [&](const BatchLimits& limits) {
    asked = limits;
    return kWorkspace;
  };
  DeviceInfo device;
  device.total_bytes = device.free_bytes = 10 * kGib;
  ASSERT_TRUE(PlanMemory(options, Config(), needs, device, kGib).ok());
  EXPECT_EQ(asked.max_tokens, 512);
  EXPECT_EQ(asked.max_sequences, 8);
  EXPECT_EQ(asked.max_context, 1024);
  EXPECT_GE(asked.max_logits_rows, 8);
}

}  // namespace
}  // namespace tlm
