// The promise: the same request gives the same tokens and the same logits, bit for bit, regardless
// of what else the engine computes at the time, how it divides the work, whether a prefix came from
// the cache, whether it was preempted and computed anew, which replica sampled its first tokens,
// and what guessed the next ones.
//
// Every logits row that any schedule computes is hashed and filed under the tokens before it. Two
// hashes under one entry, or a request whose results differ from its results alone, break the
// promise. determinism_controls_test shows that mistakes are caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/golden/rounds.h"

namespace tlm {
namespace {

struct Case {
  const char* config;
  DType dtype;  // type of weights, keys and values
  Isa isa;
  int rounds;
  WeightFormat format = WeightFormat::kAsGiven;
  std::vector<DType> blocks = {};  // types of matrices instead of `dtype`
  const char* suffix = "";         // suffix of the test's name
  std::optional<DType> kv = {};    // type of keys and values instead of `dtype`
};

// The machine's best instruction set runs most of the rounds.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Isa isa : AvailableIsas()) {
    const int rounds = isa == AvailableIsas().back() ? 8 : 1;
    // Rotary positions with QK-norm; windows; LayerNorm, biases, learned positions and GELU.
    cases.push_back({"qwen3", DType::kF32, isa, rounds});
    cases.push_back({"qwen3", DType::kBF16, isa, rounds});
    cases.push_back({"mistral", DType::kBF16, isa, rounds});
    cases.push_back({"gpt2", DType::kF16, isa, rounds});
    const int few = (rounds + 3) / 4;
    for (const char* const config : {"qwen3", "mistral"}) {
      cases.push_back({.config = config,
                       .dtype = DType::kBF16,
                       .isa = isa,
                       .rounds = few,
                       .suffix = "_fp8_kv",
                       .kv = DType::kF8E4M3});
    }
    // These are quantised while they are loaded, or in blocks as in files: every type, in stacks of
    // several.
    const auto quantised = [&](const char* config, WeightFormat format, const char* suffix) {
      cases.push_back({config, DType::kBF16, isa, few, format, {}, suffix});
    };
    quantised("qwen3", WeightFormat::kInt8, "_int8");
    quantised("qwen3", WeightFormat::kInt4, "_int4");
    quantised("gpt2", WeightFormat::kInt4G128, "_int4_128");
    const auto in_blocks = [&](const char* config, std::vector<DType> types, const char* suffix) {
      cases.push_back(
          {config, DType::kBF16, isa, few, WeightFormat::kAsGiven, std::move(types), suffix});
    };
    in_blocks("qwen3", GgufBlockTypes(), "_gguf");
    in_blocks("qwen3", OwnBlockTypes(), "_own_blocks");
    in_blocks("gpt2", GgufBlockTypes(), "_gguf");
  }
  return cases;
}

class DeterminismTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeterminismTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  const int rounds = GetParam().rounds;
  const Case& param = GetParam();
  ScheduleRunner runner(
      {.config = param.blocks.empty() ? SmallConfig(param.config) : BlockConfig(param.config),
       .dtype = param.dtype,
       .requests = 14,
       .format = param.format,
       .blocks = param.blocks,
       .kv = param.kv});
  Machine machine;
  machine.backend = [](const Schedule& schedule) -> absl::StatusOr<std::unique_ptr<Ops>> {
    return CpuOps::Create(schedule.threads, GetParam().isa);
  };
  runner.set_machine(std::move(machine));
  const auto [counts, compared] = RunRounds(runner, {.rounds = static_cast<uint64_t>(rounds)});
  // The schedules did what they are there for.
  EXPECT_GT(counts.preemptions, 5 * rounds);
  EXPECT_GT(counts.copied_blocks, 10 * rounds);
  EXPECT_GT(counts.cached_tokens, 200 * rounds);
  EXPECT_GT(counts.resumed, 6 * rounds);
  EXPECT_GT(counts.constrained, 200 * rounds);
  EXPECT_GT(counts.speculative, 3 * rounds);
  EXPECT_GT(counts.accepted, 20 * rounds);
  EXPECT_GT(counts.drafted - counts.accepted, 10 * rounds);
  EXPECT_GT(counts.constrained_drafted, 20 * rounds);
  EXPECT_GT(counts.penalised_drafted, 5 * rounds);
  EXPECT_GT(counts.preempted_drafted, 5 * rounds);
  EXPECT_GT(counts.confirmed, rounds);
  EXPECT_GT(counts.refuted, rounds);
  if (rounds >= 8) {
    EXPECT_GT(counts.accepted, 500);
    EXPECT_GT(counts.drafted - counts.accepted, 100);
    EXPECT_GT(counts.constrained_accepted, 100);
    EXPECT_GT(counts.penalised_accepted, 100);
    EXPECT_GT(counts.preempted_drafted, 300);
    EXPECT_GT(counts.ends_in_drafts, 0);
  }
  EXPECT_GT(compared, 150 * rounds);
  EXPECT_GT(runner.book().repeated, 500 * rounds);
}

INSTANTIATE_TEST_SUITE_P(Models, DeterminismTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}_{}", info.param.config,
                                              DTypeName(info.param.dtype), info.param.suffix,
                                              IsaName(info.param.isa));
                         });

}  // namespace
}  // namespace tlm
