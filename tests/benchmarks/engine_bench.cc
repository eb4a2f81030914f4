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
#include "model/accounting/flops.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/backend_flags.h"
#include "tests/benchmarks/engine/bench_model.h"
#include "tests/benchmarks/engine/model_runs.h"
#include "tests/benchmarks/engine/request_run.h"

ABSL_FLAG(std::string, model, "", "model directory");
ABSL_FLAG(std::string, preset, "", "known shape with random weights, in place of --model");
ABSL_FLAG(std::string, weights_dtype, "", "of random weights: float32, bfloat16, float16");
ABSL_FLAG(std::string, kv_cache_dtype, "", "of keys and values; empty: the backend's choice");
ABSL_FLAG(std::vector<std::string>, prompts, {"512"}, "tokens of the prompts timed; empty: none");
ABSL_FLAG(int64_t, decode, 128, "tokens decoded by each sequence; 0: none");
ABSL_FLAG(std::vector<std::string>, sequences, {"1"}, "decoding at the same time");
ABSL_FLAG(std::vector<std::string>, depths, {"0"}, "tokens every sequence has before it decodes");
ABSL_FLAG(int64_t, requests, 0, "sent at once to the engine; 0: none");
ABSL_FLAG(int64_t, request_prompt, 1024, "tokens of each request's prompt");
ABSL_FLAG(int64_t, request_output, 1024, "tokens each request generates");
ABSL_FLAG(int64_t, batch_tokens, 8192, "of a step at the most");
ABSL_FLAG(int32_t, repetitions, 5, "of each test; medians are printed");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;

// What is to be measured.
struct Plan {
  ModelChoice choice;
  std::vector<int64_t> prompts, sequences, depths;
  int64_t decode = 0;
  RequestLoad load;
  int64_t batch_tokens = 0;
  int repetitions = 0;

  BatchLimits Limits(int64_t context_length) const {
    BatchLimits limits{.max_tokens = batch_tokens, .max_sequences = 1, .max_context = 2};
    for (const int64_t count : sequences) {
      limits.max_sequences = std::max(limits.max_sequences, count);
    }
    limits.max_sequences = std::max(limits.max_sequences, load.requests);
    limits.max_tokens = std::max(limits.max_tokens, limits.max_sequences);
    for (const int64_t prompt : prompts) {
      limits.max_context = std::max(limits.max_context, prompt);
    }
    for (const int64_t depth : depths) {
      limits.max_context = std::max(limits.max_context, depth + decode + 1);
    }
    if (load.requests > 0) {
      limits.max_context =
          std::max(limits.max_context, load.prompt_tokens + load.output_tokens + 1);
    }
    limits.max_context = std::min(limits.max_context, context_length);
    limits.max_logits_rows = limits.max_sequences;
    return limits;
  }
  static int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }
  int64_t KvBlocks(int64_t max_context) const {
    int64_t blocks = BlocksOf(max_context);
    for (const int64_t count : sequences) {
      for (const int64_t depth : depths) {
        blocks = std::max(blocks, count * BlocksOf(depth + decode + 1));
      }
    }
    return std::max(blocks, load.requests * BlocksOf(load.prompt_tokens + load.output_tokens + 1));
  }
};

absl::StatusOr<Plan> PlanFromFlags() {
  constexpr int64_t kMost = int64_t{1} << 24;
  Plan plan;
  plan.choice.directory = absl::GetFlag(FLAGS_model);
  plan.choice.preset = absl::GetFlag(FLAGS_preset);
  TLM_ASSIGN_OR_RETURN(plan.choice.weights_dtype,
                       TypeFlag(absl::GetFlag(FLAGS_weights_dtype), "weights_dtype"));
  TLM_ASSIGN_OR_RETURN(plan.choice.kv_dtype,
                       TypeFlag(absl::GetFlag(FLAGS_kv_cache_dtype), "kv_cache_dtype"));
  TLM_ASSIGN_OR_RETURN(plan.prompts,
                       NumbersFlag(absl::GetFlag(FLAGS_prompts), "prompts", 1, kMost));
  TLM_ASSIGN_OR_RETURN(plan.sequences,
                       NumbersFlag(absl::GetFlag(FLAGS_sequences), "sequences", 1, 65536));
  TLM_ASSIGN_OR_RETURN(plan.depths, NumbersFlag(absl::GetFlag(FLAGS_depths), "depths", 0, kMost));
  plan.decode = absl::GetFlag(FLAGS_decode);
  plan.load = {.requests = absl::GetFlag(FLAGS_requests),
               .prompt_tokens = absl::GetFlag(FLAGS_request_prompt),
               .output_tokens = absl::GetFlag(FLAGS_request_output)};
  plan.batch_tokens = absl::GetFlag(FLAGS_batch_tokens);
  plan.repetitions = absl::GetFlag(FLAGS_repetitions);
  for (const auto& [value, name] : {std::pair(plan.load.prompt_tokens, "request_prompt"),
                                    std::pair(plan.load.output_tokens, "request_output"),
                                    std::pair(plan.batch_tokens, "batch_tokens"),
                                    std::pair(int64_t{plan.repetitions}, "repetitions")}) {
    if (value < 1 || value > kMost) {
      return InvalidArgument("--{} is {}, not 1 to {}", name, value, kMost);
    }
  }
  if (plan.decode == 1 || plan.decode < 0 || plan.decode > kMost) {
    return InvalidArgument("--decode is {}, not 0 or 2 to {}", plan.decode, kMost);
  }
  if (plan.load.requests < 0 || plan.load.requests > 65536) {
    return InvalidArgument("--requests is {}, not 0 to 65536", plan.load.requests);
  }
  return plan;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Operations of the products a prompt needs: the head for the last position alone, scores for the
// positions a token sees.
double PromptFlops(const ModelConfig& config, int64_t tokens) {
  const FlopsCount count = CountFlops(config, {.prompt_tokens = static_cast<uint64_t>(tokens)});
  const double attention = static_cast<double>(count.scores + count.weighted_sum);
  const double head = static_cast<double>(count.lm_head);
  return static_cast<double>(count.total) - attention / 2 - head +
         head / static_cast<double>(tokens);
}

class Bench {
 public:
  Bench(const Plan& plan, BenchModel& loaded) : plan_(plan), loaded_(loaded) {}

  absl::Status Run() {
    fmt::print("{:<28} {:>12} {:>12} {:>10} {:>10}\n", "test", "tokens/s", "ms", "GB/s", "TFLOP/s");
    for (const int64_t prompt : plan_.prompts) TLM_RETURN_IF_ERROR(TimePrompt(prompt));
    if (plan_.decode > 0) {
      for (const int64_t depth : plan_.depths) {
        for (const int64_t count : plan_.sequences) {
          TLM_RETURN_IF_ERROR(TimeDecode(count, depth));
        }
      }
    }
    return plan_.load.requests > 0 ? TimeRequests() : absl::OkStatus();
  }
  const Json& tests() const { return tests_; }

 private:
  void Add(const std::string& name, double tokens_per_second, double seconds, double bytes,
           double flops, Json more) {
    const auto rate = [seconds](double amount, double unit) {
      return amount > 0 ? fmt::format("{:.1f}", amount / seconds / unit) : std::string("-");
    };
    fmt::print("{:<28} {:>12.1f} {:>12.3f} {:>10} {:>10}\n", name, tokens_per_second, 1e3 * seconds,
               rate(bytes, 1e9), rate(flops, 1e12));
    std::fflush(stdout);
    Json test = {{"test", name}, {"tokens_per_second", tokens_per_second}, {"seconds", seconds}};
    if (bytes > 0) test["bytes"] = bytes;
    if (flops > 0) test["flops"] = flops;
    test.update(more);
    tests_.push_back(std::move(test));
  }

  absl::Status TimePrompt(int64_t tokens) {
    ModelRuns runs(*loaded_.model, 1, tokens);
    std::vector<double> seconds;
    for (int i = 0; i <= plan_.repetitions; ++i) {
      TLM_ASSIGN_OR_RETURN(const double taken, runs.Prefill(tokens, plan_.batch_tokens));
      if (i > 0) seconds.push_back(taken);  // the first one warms up
    }
    const double median = Median(seconds);
    Add(fmt::format("pp{}", tokens), static_cast<double>(tokens) / median, median, 0,
        PromptFlops(loaded_.config, tokens), {{"all_seconds", seconds}});
    return absl::OkStatus();
  }

  absl::Status TimeDecode(int64_t count, int64_t depth) {
    std::vector<double> medians;
    for (int i = 0; i < plan_.repetitions; ++i) {
      ModelRuns runs(*loaded_.model, count, depth + plan_.decode + 1);
      TLM_RETURN_IF_ERROR(runs.Fill(depth, plan_.batch_tokens));
      TLM_ASSIGN_OR_RETURN(const std::vector<double> steps, runs.Decode(plan_.decode));
      medians.push_back(Median(steps));
    }
    const double median = Median(medians);
    const double context = static_cast<double>(depth) + static_cast<double>(plan_.decode) / 2;
    const double bytes =
        static_cast<double>(loaded_.WeightBytesRead()) +
        static_cast<double>(count) * context * static_cast<double>(loaded_.KvBytesPerToken());
    std::string name = fmt::format("tg{}", plan_.decode);
    if (count > 1) name += fmt::format(" x {}", count);
    if (depth > 0) name += fmt::format(" @ d{}", depth);
    Add(name, static_cast<double>(count) / median, median, bytes, 0,
        {{"sequences", count}, {"depth", depth}, {"median_step_seconds", medians}});
    return absl::OkStatus();
  }

  absl::Status TimeRequests() {
    const BatchLimits& limits = loaded_.model->limits();
    const EngineOptions options{.max_batch_tokens = limits.max_tokens,
                                .max_prefill_tokens = limits.max_tokens,
                                .max_running_requests = limits.max_sequences,
                                .max_queued_requests = plan_.load.requests,
                                .max_queued_tokens = plan_.load.requests * plan_.load.prompt_tokens,
                                .prefix_cache = false,
                                .max_decode_stretch = 0};
    TLM_ASSIGN_OR_RETURN(const RequestFigures figures,
                         RunRequests(*loaded_.model, options, plan_.load));
    Add(fmt::format("{} requests {}/{}", plan_.load.requests, plan_.load.prompt_tokens,
                    plan_.load.output_tokens),
        static_cast<double>(figures.output_tokens) / figures.seconds, figures.seconds, 0, 0,
        {{"median_first_token_seconds", figures.median_first_token}, {"steps", figures.steps}});
    return absl::OkStatus();
  }

  const Plan& plan_;
  BenchModel& loaded_;
  Json tests_ = Json::array();
};

Json Describe(const BenchModel& loaded) {
  const DeviceInfo& device = loaded.backend.ops->device().info();
  return {{"model", loaded.name},
          {"weights_dtype", DTypeName(loaded.weights_dtype)},
          {"kv_cache_dtype", DTypeName(loaded.kv_dtype)},
          {"weight_bytes_read", loaded.WeightBytesRead()},
          {"kv_bytes_per_token", loaded.KvBytesPerToken()},
          {"load_seconds", loaded.load_seconds},
          {"backend", device.backend},
          {"device", device.name},
          {"arithmetic", device.arithmetic}};
}

absl::Status Main() {
  TLM_ASSIGN_OR_RETURN(const Plan plan, PlanFromFlags());
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadBenchConfig(plan.choice));
  const BatchLimits limits = plan.Limits(config.context_length);
  TLM_ASSIGN_OR_RETURN(Backend backend, BackendFromFlags());
  fmt::print("{}\n", backend.reason);
  TLM_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchModel> loaded,
      LoadBenchModel(plan.choice, std::move(backend), limits, plan.KvBlocks(limits.max_context)));
  fmt::print("{}: {} weights, {} keys and values, {:.2f} GB read a step, loaded in {:.2f} s\n\n",
             loaded->name, DTypeName(loaded->weights_dtype), DTypeName(loaded->kv_dtype),
             static_cast<double>(loaded->WeightBytesRead()) / 1e9, loaded->load_seconds);
  Bench bench(plan, *loaded);
  TLM_RETURN_IF_ERROR(bench.Run());
  const std::string backend_report = loaded->backend.ops->Report();
  if (!backend_report.empty()) fmt::print("\n{}\n", backend_report);
  Json report = Describe(*loaded);
  if (!backend_report.empty()) report["backend_report"] = backend_report;
  report["tests"] = bench.tests();
  return WriteJson(report, absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times prompts (pp), decoding (tg) and many requests on a model without a server.\n"
      "  engine_bench --preset=qwen3-0.6b --prompts=512 --decode=128 --sequences=1,4,16");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = tlm::bench::Main();
  if (status.ok()) return 0;
  fmt::print(stderr, "engine_bench: {}\n", std::string(status.message()));
  return 1;
}
