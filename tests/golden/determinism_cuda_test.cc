// Checks determinism_test's promise on a GPU, where there is one: random schedules with everything
// that only makes it faster on and off. All results of a request equal its results alone with all
// of it off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "model/backend/backend.h"
#include "tests/golden/rounds.h"

namespace tlm {
namespace {

absl::StatusOr<std::unique_ptr<Ops>> MakeCuda(const CudaOptions& cuda) {
  BackendOptions options;
  options.kind = BackendKind::kCuda;
  options.cuda = cuda;
  auto backend = CreateBackend(options);
  if (!backend.ok()) return backend.status();
  return std::move(backend->ops);
}

Machine MachineOf(const CudaOptions& options) {
  Machine machine;
  machine.backend = [options](const Schedule&) { return MakeCuda(options); };
  return machine;
}

struct CudaCase {
  const char* name;
  const char* config;
  DType dtype;
  // Replaces the small configuration's own value, so that tensor cores are used; 0: keeps it.
  int64_t head_dim = 0;
  std::optional<DType> kv = {};  // type of keys and values instead of `dtype`
  WeightFormat format = WeightFormat::kAsGiven;
};

class DeterminismCudaTest : public ::testing::TestWithParam<CudaCase> {};

TEST_P(DeterminismCudaTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  if (const auto probe = MakeCuda({}); !probe.ok()) {
    GTEST_SKIP() << std::string(probe.status().message());
  }
  ModelConfig config = SmallConfig(GetParam().config);
  if (GetParam().head_dim > 0) {
    config.head_dim = GetParam().head_dim;
    config.d_model = 128;
    config.d_ff = 192;
  }
  ScheduleRunner runner({.config = config,
                         .dtype = GetParam().dtype,
                         .requests = 14,
                         .max_outputs = kMaxOutputs,
                         .format = GetParam().format,
                         .kv = GetParam().kv});
  const auto [counts, compared] =
      RunRounds(runner, {.rounds = 3, .seed = 11, .prepare = [&](uint64_t, int index, Schedule&) {
                           const bool on = index != Rounds::kAlone;
                           runner.set_machine(MachineOf({.graphs = on && index % 2 == 0,
                                                         .overlap = on && index / 2 % 2 == 0,
                                                         .library = on && index / 4 % 2 == 0}));
                         }});
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(compared, 300);
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, DeterminismCudaTest,
    ::testing::Values(
        CudaCase{"Qwen3Bf16", "qwen3", DType::kBF16, 64},
        CudaCase{"Qwen3Wide", "qwen3", DType::kBF16, 128},
        CudaCase{"MistralFp16", "mistral", DType::kF16, 80},
        CudaCase{"LlamaBf16PlainArithmetic", "llama", DType::kBF16},
        CudaCase{"Qwen3Fp8Kv", "qwen3", DType::kBF16, 128, DType::kF8E4M3},
        CudaCase{"Qwen3Int8", "qwen3", DType::kBF16, 128, std::nullopt, WeightFormat::kInt8},
        CudaCase{"Qwen3Int4Fp8Kv", "qwen3", DType::kBF16, 128, DType::kF8E4M3, WeightFormat::kInt4},
        CudaCase{"Gpt2Fp32", "gpt2", DType::kF32}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
