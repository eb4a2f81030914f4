// engine_bench: prompts, decoding and many requests without RPC. See README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/engine_tests.h"
#include "tests/benchmarks/engine/model_flags.h"
#include "tests/benchmarks/engine/op_inputs.h"
#include "tests/benchmarks/engine/statistics.h"

ABSL_FLAG(std::vector<std::string>, prompts, {"512"}, "tokens of the prompts timed; empty: none");
ABSL_FLAG(int64_t, decode, 128, "tokens decoded by each sequence; 0: none");
ABSL_FLAG(std::vector<std::string>, sequences,
          (std::vector<std::string>{"1", "4", "8", "16", "32"}), "decoding at the same time");
ABSL_FLAG(std::vector<std::string>, depths, {"0"}, "tokens every sequence has before it decodes");
ABSL_FLAG(int64_t, long_depth, 8192, "that one sequence decodes at, besides; 0: none");
ABSL_FLAG(int64_t, requests, 0, "sent at once to the engine; 0: none");
ABSL_FLAG(int64_t, request_prompt, 1024, "tokens of each request's prompt");
ABSL_FLAG(int64_t, request_output, 1024, "tokens each request generates");
ABSL_FLAG(bool, request_logprobs, false,
          "ask for each token's log-probability; the digest of the results has their bits then");
ABSL_FLAG(int64_t, batch_tokens, 8192, "of a step at the most");
ABSL_FLAG(
    uint64_t, memory_bytes, 0,
    "of the device, that the model may take; tests with more keys and values are left out; 0: "
    "what a GPU has free, no limit in the host's memory");
ABSL_FLAG(int32_t, repetitions, 5, "of each test; medians are printed");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMax = int64_t{1} << 24;

absl::StatusOr<std::vector<DecodeTest>> DecodesFromFlags() {
  TLM_ASSIGN_OR_RETURN(const std::vector<int64_t> sequences,
                       NumbersFlag(absl::GetFlag(FLAGS_sequences), "sequences", 1, 65536));
  TLM_ASSIGN_OR_RETURN(const std::vector<int64_t> depths,
                       NumbersFlag(absl::GetFlag(FLAGS_depths), "depths", 0, kMax));
  std::vector<DecodeTest> tests;
  if (absl::GetFlag(FLAGS_decode) == 0) return tests;
  for (const int64_t depth : depths) {
    for (const int64_t count : sequences) tests.push_back({.sequences = count, .depth = depth});
  }
  const int64_t depth = absl::GetFlag(FLAGS_long_depth);
  if (depth > 0) tests.push_back({.sequences = 1, .depth = depth});
  return tests;
}

absl::StatusOr<EnginePlan> PlanFromFlags() {
  EnginePlan plan;
  TLM_ASSIGN_OR_RETURN(plan.prompts, NumbersFlag(absl::GetFlag(FLAGS_prompts), "prompts", 1, kMax));
  TLM_ASSIGN_OR_RETURN(plan.decodes, DecodesFromFlags());
  plan.decode_tokens = absl::GetFlag(FLAGS_decode);
  plan.load = {.requests = absl::GetFlag(FLAGS_requests),
               .prompt_tokens = absl::GetFlag(FLAGS_request_prompt),
               .output_tokens = absl::GetFlag(FLAGS_request_output),
               .logprobs = absl::GetFlag(FLAGS_request_logprobs)};
  plan.batch_tokens = absl::GetFlag(FLAGS_batch_tokens);
  plan.repetitions = absl::GetFlag(FLAGS_repetitions);
  for (const auto& [value, name] : {std::pair(plan.load.prompt_tokens, "request_prompt"),
                                    std::pair(plan.load.output_tokens, "request_output"),
                                    std::pair(plan.batch_tokens, "batch_tokens"),
                                    std::pair(int64_t{plan.repetitions}, "repetitions")}) {
    if (value < 1 || value > kMax) {
      return InvalidArgument("--{} is {}, not 1 to {}", name, value, kMax);
    }
  }
  for (const auto& [value, name] : {std::pair(absl::GetFlag(FLAGS_long_depth), "long_depth"),
                                    std::pair(plan.load.requests, "requests")}) {
    if (value < 0 || value > kMax) {
      return InvalidArgument("--{} is {}, not 0 to {}", name, value, kMax);
    }
  }
  if (plan.decode_tokens == 1 || plan.decode_tokens < 0 || plan.decode_tokens > kMax) {
    return InvalidArgument("--decode is {}, not 0 or 2 to {}", plan.decode_tokens, kMax);
  }
  return plan;
}

struct ProductRate {
  std::string name;  // "products of 512 x 1024 with 1024 x 6144"
  double flops_per_second = 0;
};

// The rate of the model's widest matrix product with up to 512 rows, repeated with one matrix: an
// upper bound for prefill. Takes some tenths of a second; errors of PackMatrix.
absl::StatusOr<ProductRate> MeasureProducts(BenchModel& loaded) {
  constexpr double kSeconds = 0.3;
  constexpr size_t kMinRuns = 5;
  Ops& ops = *loaded.backend.ops;
  const int64_t rows = std::min<int64_t>(512, loaded.model->limits().max_tokens);
  const int64_t k = loaded.config.d_model;
  const int64_t n = (loaded.config.gated_ffn() ? 2 : 1) * loaded.config.d_ff;
  const DType activations = ops.ActivationType(loaded.weights_dtype);
  const bool blocks = loaded.weights_dtype == DType::kI8;
  TLM_ASSIGN_OR_RETURN(
      const auto matrix,
      MakeMatrix(ops, n, k, blocks ? DType::kBF16 : loaded.weights_dtype, MatrixUse::kPlain,
                 blocks ? WeightFormat::kInt8 : WeightFormat::kAsGiven));
  TLM_ASSIGN_OR_RETURN(const OwnedRows x, MakeRows(ops, rows, k, activations));
  TLM_ASSIGN_OR_RETURN(const OwnedRows out, MakeRows(ops, rows, n, activations));
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kMinRuns || total < kSeconds) {
    const absl::Time begin = absl::Now();
    TLM_RETURN_IF_ERROR(ops.MatMul(x.rows, *matrix, {}, out.rows));
    TLM_RETURN_IF_ERROR(ops.device().Synchronize());
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    total += seconds.back();
  }
  return ProductRate{.name = fmt::format("products of {} x {} with {} x {}", rows, k, k, n),
                     .flops_per_second = 2.0 * static_cast<double>(rows * n) *
                                         static_cast<double>(k) / Median(seconds)};
}

// The machine's peak rates, and the backend's own matrix products of many rows.
absl::StatusOr<CpuCeilings> MeasureMachine(BenchModel& loaded, Json* report) {
  TLM_ASSIGN_OR_RETURN(
      const CpuCeilings ceilings,
      CeilingsFromFlags(loaded.backend.ops->device().info(), loaded.weights_dtype));
  if (ceilings.read_bytes_per_second == 0) return ceilings;
  TLM_ASSIGN_OR_RETURN(const ProductRate products, MeasureProducts(loaded));
  fmt::print("{}: {:.0f} GFLOP/s\n", products.name, products.flops_per_second / 1e9);
  (*report)["ceilings"] = ToJson(ceilings);
  (*report)["ceilings"]["product"] = products.name;
  (*report)["ceilings"]["product_flops_per_second"] = products.flops_per_second;
  return ceilings;
}

// The row of a test whose keys and values do not fit the device's memory.
void PrintTooLarge(const EnginePlan::TooLarge& test, uint64_t block_bytes, Json* rows) {
  const auto megabytes = [block_bytes](int64_t blocks) {
    return static_cast<double>(blocks) * static_cast<double>(block_bytes) / 1e6;
  };
  fmt::print("{:<24} does not fit: {:.0f} MB of keys and values, {:.0f} MB are left for them\n",
             test.name, megabytes(test.needed_blocks), megabytes(test.affordable_blocks));
  rows->push_back({{"test", test.name},
                   {"kv_bytes", static_cast<uint64_t>(test.needed_blocks) * block_bytes},
                   {"room_bytes", static_cast<uint64_t>(test.affordable_blocks) * block_bytes}});
}

// False: no test fits, and nothing was measured.
absl::StatusOr<bool> Main() {
  TLM_ASSIGN_OR_RETURN(const ModelChoice choice, ModelFromFlags());
  TLM_ASSIGN_OR_RETURN(EnginePlan plan, PlanFromFlags());
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(choice));
  const std::vector<std::string> left_out = plan.DropLongerThan(config.context_length);
  TLM_ASSIGN_OR_RETURN(Backend backend, BackendFromFlags());
  fmt::print("{}\n", backend.reason);
  Json too_large = Json::array();
  {
    TLM_ASSIGN_OR_RETURN(const KvRoom room,
                         KvRoom::Of(choice, *backend.ops, absl::GetFlag(FLAGS_memory_bytes)));
    for (const EnginePlan::TooLarge& test :
         plan.DropUntilFits([&room](const BatchLimits& limits) { return room.Blocks(limits); })) {
      PrintTooLarge(test, room.block_bytes(), &too_large);
    }
  }
  if (plan.empty() && !too_large.empty()) {
    fmt::print("skipped: no test fits the memory\n");
    TLM_RETURN_IF_ERROR(WriteJson({{"tests", Json::array()}, {"does_not_fit", too_large}},
                                  absl::GetFlag(FLAGS_json)));
    return false;
  }
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<BenchModel> loaded,
                       LoadBenchModel(choice, std::move(backend), plan.Limits(), plan.KvBlocks()));
  fmt::print("{}: {} weights, {} keys and values, {:.2f} GB read a step, loaded in {:.2f} s\n",
             loaded->name, DTypeName(loaded->weights_dtype), DTypeName(loaded->kv_dtype),
             static_cast<double>(loaded->WeightBytesRead()) / 1e9, loaded->load_seconds);
  Json report = ToJson(*loaded);
  TLM_ASSIGN_OR_RETURN(const CpuCeilings ceilings, MeasureMachine(*loaded, &report));
  fmt::print("\n");
  report["left_out"] = left_out;
  report["does_not_fit"] = too_large;
  EngineTests tests(plan, *loaded, ceilings);
  // What has been measured stays, whatever the next test does.
  const auto save = [&] {
    report["tests"] = tests.results();
    return WriteJson(report, absl::GetFlag(FLAGS_json));
  };
  TLM_RETURN_IF_ERROR(tests.Run(save));
  for (const std::string& name : left_out) {
    fmt::print("{:<24} left out: the context is {} tokens\n", name, config.context_length);
  }
  const std::string backend_report = loaded->backend.ops->Report();
  if (!backend_report.empty()) {
    fmt::print("\n{}\n", backend_report);
    report["backend_report"] = backend_report;
  }
  TLM_RETURN_IF_ERROR(save());
  return true;
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times prompts (pp), decoding (tg) and many requests on a model without a server.\n"
      "  engine_bench --preset=qwen3-0.6b --sequences=1,16 --long_depth=0");
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> measured = tlm::bench::Main();
  if (measured.ok()) return *measured ? 0 : 77;
  fmt::print(stderr, "engine_bench: {}\n", std::string(measured.status().message()));
  return 1;
}
