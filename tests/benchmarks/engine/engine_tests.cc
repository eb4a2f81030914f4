#include "tests/benchmarks/engine/engine_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "model/accounting/flops.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/model_runs.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {
namespace {

std::string PromptName(int64_t tokens) { return fmt::format("pp{}", tokens); }

std::string DecodeName(int64_t tokens, const DecodeTest& test) {
  std::string name = fmt::format("tg{}", tokens);
  if (test.sequences > 1) name += fmt::format(" x {}", test.sequences);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  return name;
}

std::string LoadName(const RequestLoad& load) {
  return fmt::format("{} requests {}/{}", load.requests, load.prompt_tokens, load.output_tokens);
}

int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

int64_t BlocksOf(const DecodeTest& test, int64_t decode_tokens) {
  return test.sequences * BlocksOf(test.depth + decode_tokens);
}

int64_t BlocksOf(const RequestLoad& load) {
  return load.requests * BlocksOf(load.prompt_tokens + load.output_tokens + 1);
}

}  // namespace

std::vector<std::string> EnginePlan::DropLongerThan(int64_t context) {
  std::vector<std::string> dropped;
  std::erase_if(prompts, [&](int64_t tokens) {
    if (tokens <= context) return false;
    dropped.push_back(PromptName(tokens));
    return true;
  });
  std::erase_if(decodes, [&](const DecodeTest& test) {
    if (test.depth + decode_tokens <= context) return false;
    dropped.push_back(DecodeName(decode_tokens, test));
    return true;
  });
  return dropped;
}

BatchLimits EnginePlan::Limits() const {
  BatchLimits limits{.max_tokens = batch_tokens, .max_sequences = 1, .max_context = 2};
  for (const int64_t prompt : prompts) limits.max_context = std::max(limits.max_context, prompt);
  for (const DecodeTest& test : decodes) {
    limits.max_sequences = std::max(limits.max_sequences, test.sequences);
    limits.max_context = std::max(limits.max_context, test.depth + decode_tokens);
  }
  if (load.requests > 0) {
    limits.max_sequences = std::max(limits.max_sequences, load.requests);
    limits.max_context = std::max(limits.max_context, load.prompt_tokens + load.output_tokens);
  }
  limits.max_tokens = std::max(limits.max_tokens, limits.max_sequences);
  limits.max_logits_rows = limits.max_sequences;
  return limits;
}

int64_t EnginePlan::KvBlocks() const {
  int64_t blocks = BlocksOf(Limits().max_context);
  for (const DecodeTest& test : decodes) {
    blocks = std::max(blocks, BlocksOf(test, decode_tokens));
  }
  return std::max(blocks, BlocksOf(load));
}

bool EnginePlan::empty() const { return prompts.empty() && decodes.empty() && load.requests == 0; }

EnginePlan::TooLarge EnginePlan::DropLargest() {
  TooLarge dropped;
  const auto offer = [&dropped](std::string name, int64_t blocks) {
    if (blocks <= dropped.needed_blocks) return false;
    dropped = {.name = std::move(name), .needed_blocks = blocks};
    return true;
  };
  for (const int64_t prompt : prompts) offer(PromptName(prompt), BlocksOf(prompt));
  for (const DecodeTest& test : decodes) {
    offer(DecodeName(decode_tokens, test), BlocksOf(test, decode_tokens));
  }
  if (load.requests > 0 && offer(LoadName(load), BlocksOf(load))) {
    load.requests = 0;
    return dropped;
  }
  std::erase_if(prompts, [&](int64_t prompt) { return PromptName(prompt) == dropped.name; });
  std::erase_if(decodes, [&](const DecodeTest& test) {
    return DecodeName(decode_tokens, test) == dropped.name;
  });
  return dropped;
}

std::vector<EnginePlan::TooLarge> EnginePlan::DropUntilFits(
    const std::function<int64_t(const BatchLimits&)>& affordable_blocks) {
  std::vector<TooLarge> dropped;
  while (!empty()) {
    const int64_t affordable = affordable_blocks(Limits());
    if (KvBlocks() <= affordable) break;
    dropped.push_back(DropLargest());
    dropped.back().affordable_blocks = std::max<int64_t>(affordable, 0);
  }
  return dropped;
}

absl::Status EngineTests::Run(const std::function<absl::Status()>& saved) {
  fmt::print("{:<24} {:>11} {:>8} {:>11} {:>8} {:>9} {:>8}\n", "test", "tokens/s", "+-", "ms",
             "GB/s", "TFLOP/s", "of most");
  for (const int64_t prompt : plan_.prompts) {
    TLM_RETURN_IF_ERROR(TimePrompt(prompt));
    TLM_RETURN_IF_ERROR(saved());
  }
  for (const DecodeTest& test : plan_.decodes) {
    TLM_RETURN_IF_ERROR(TimeDecode(test));
    TLM_RETURN_IF_ERROR(saved());
  }
  if (plan_.load.requests == 0) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(TimeRequests());
  return saved();
}

double EngineTests::Fraction(const Found& found, double seconds) const {
  const bool bf16_attention =
      (loaded_.kv_dtype == DType::kBF16 || loaded_.kv_dtype == DType::kF8E4M3) &&
      loaded_.backend.ops->ActivationType(loaded_.weights_dtype) == DType::kBF16;
  return ceilings_.Fraction(seconds, found.bytes,
                            found.linear_flops + (bf16_attention ? found.attention_flops : 0),
                            bf16_attention ? 0 : found.attention_flops);
}

void EngineTests::Add(const Found& found, Json more) {
  std::vector<double> rates;
  for (const double seconds : found.seconds) rates.push_back(found.tokens / seconds);
  const double seconds = Median(found.seconds) / found.steps;
  const double flops = found.linear_flops + found.attention_flops;
  const double fraction = Fraction(found, seconds);
  const auto rate = [seconds](double amount, double unit, int digits) {
    return amount > 0 ? fmt::format("{:.{}f}", amount / seconds / unit, digits) : std::string("-");
  };
  fmt::print("{:<24} {:>11.2f} {:>8.2f} {:>11.3f} {:>8} {:>9} {:>8}\n", found.name, Median(rates),
             StandardDeviation(rates), 1e3 * seconds, rate(found.bytes, 1e9, 1),
             rate(flops, 1e12, 3),
             fraction > 0 ? fmt::format("{:.0f} %", 100 * fraction) : std::string("-"));
  std::fflush(stdout);
  Json test = {
      {"test", found.name},    {"tokens_per_second", Median(rates)},    {"seconds", seconds},
      {"avg_ts", Mean(rates)}, {"stddev_ts", StandardDeviation(rates)}, {"samples_ts", rates}};
  if (found.bytes > 0) test["bytes"] = found.bytes;
  if (flops > 0) test["flops"] = flops;
  if (fraction > 0) test["fraction_of_ceiling"] = fraction;
  test.update(more);
  results_.push_back(std::move(test));
}

absl::Status EngineTests::TimePrompt(int64_t tokens) {
  ModelRuns runs(*loaded_.model, 1, tokens);
  Found found{.name = PromptName(tokens), .tokens = static_cast<double>(tokens)};
  for (int i = 0; i <= plan_.repetitions; ++i) {
    TLM_ASSIGN_OR_RETURN(const double taken, runs.Prefill(tokens, plan_.batch_tokens));
    if (i > 0) found.seconds.push_back(taken);  // the first one warms up
  }
  // The head for the last position alone, scores for the positions a token sees.
  const FlopsCount count =
      CountFlops(loaded_.config, {.prompt_tokens = static_cast<uint64_t>(tokens)});
  const auto head = static_cast<double>(count.lm_head);
  found.attention_flops = static_cast<double>(count.scores + count.weighted_sum) / 2;
  found.linear_flops =
      static_cast<double>(count.total) - 2 * found.attention_flops - head + head / found.tokens;
  Add(found, {{"n_prompt", tokens}, {"n_gen", 0}, {"n_depth", 0}, {"n_parallel", 1}});
  return absl::OkStatus();
}

absl::Status EngineTests::TimeDecode(const DecodeTest& test) {
  const auto count = static_cast<double>(test.sequences);
  const auto steps = static_cast<double>(plan_.decode_tokens);
  Found found{
      .name = DecodeName(plan_.decode_tokens, test), .tokens = count * steps, .steps = steps};
  ModelRuns runs(*loaded_.model, test.sequences, test.depth + plan_.decode_tokens);
  TLM_RETURN_IF_ERROR(runs.Fill(test.depth, plan_.batch_tokens));
  TLM_RETURN_IF_ERROR(runs.Decode(2).status());  // warms up
  for (int i = 0; i < plan_.repetitions; ++i) {
    runs.Rewind(test.depth);
    TLM_ASSIGN_OR_RETURN(const std::vector<double> taken, runs.Decode(plan_.decode_tokens));
    found.seconds.push_back(std::accumulate(taken.begin(), taken.end(), 0.0));
  }
  const double context = static_cast<double>(test.depth) + steps / 2;
  const FlopsCount flops = CountFlops(loaded_.config, {.new_tokens = 1});
  found.bytes = static_cast<double>(loaded_.WeightBytesRead()) +
                count * context * static_cast<double>(loaded_.KvBytesPerToken());
  found.linear_flops = count * static_cast<double>(flops.per_token_linear);
  found.attention_flops =
      count * context * static_cast<double>(flops.attention_per_token_per_context);
  Add(found, {{"n_prompt", 0},
              {"n_gen", plan_.decode_tokens},
              {"n_depth", test.depth},
              {"n_parallel", test.sequences},
              {"sequences", test.sequences}});
  return absl::OkStatus();
}

absl::Status EngineTests::TimeRequests() {
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
  Add({.name = LoadName(plan_.load),
       .tokens = static_cast<double>(figures.output_tokens),
       .seconds = {figures.seconds}},
      {{"median_first_token_seconds", figures.median_first_token},
       {"steps", figures.steps},
       {"token_digest", fmt::format("{:016x}", figures.token_digest)}});
  return absl::OkStatus();
}

}  // namespace tlm::bench
