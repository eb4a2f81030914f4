// The cost of the engine without the model: whole steps of EngineLoop around a no-op model, with
// arrivals, deadlines, planning, batching, sampling from a small vocabulary, token streams and
// metrics; without readers taking their results.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "model/base/clock.h"
#include "model/base/errors.h"
#include "server/batching/engine_loop.h"
#include "server/batching/request_queue.h"
#include "tests/benchmarks/noop_model.h"

namespace tlm {
namespace {

constexpr int64_t kPromptTokens = 64;
constexpr int64_t kSteps = 512;
constexpr int64_t kBlocksPerSequence = 64;  // more than any fills

// An engine without threads, and readers that take everything between two steps.
class Bench {
 public:
  Bench(int64_t sequences, int64_t max_tokens, bool prefix_cache)
      : model_({.max_tokens = max_tokens,
                .max_sequences = sequences,
                .max_logits_rows = sequences,
                .max_context = 1 << 20},
               sequences * kBlocksPerSequence, /*rows_per_second=*/0),
        queue_(std::make_shared<RequestQueue>(QueueLoad{1 << 20, int64_t{1} << 40})),
        loop_(model_, Options(sequences, max_tokens, prefix_cache), *Clock::Monotonic(), queue_) {}
  ~Bench() { loop_.EndAll(absl::CancelledError()); }

  void Submit(int64_t prompt_tokens, int64_t new_tokens) {
    Request request;
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<int32_t>(random_() % bench::NoopModel::kVocabSize));
    }
    request.work.emplace<GenerateWork>();
    request.generate()->sampling.temperature = 0;
    request.generate()->stop.max_new_tokens = new_tokens;
    request.stream =
        std::make_shared<TokenStream>(std::weak_ptr<StreamListener>(), kStreamCapacity);
    streams_.push_back(request.stream);
    TLM_CHECK(queue_->Push(std::move(request), Clock::Monotonic()->Now(), 0).ok());
  }

  // Its duration in seconds.
  double Step() {
    const auto begin = std::chrono::steady_clock::now();
    TLM_CHECK(loop_.Step());
    const EngineLoop::Report report = loop_.TakeReport();
    const auto end = std::chrono::steady_clock::now();
    decode_tokens_ = report.stats.decode_tokens;
    prefill_tokens_ = report.stats.prefill_tokens;
    for (const auto& stream : streams_) stream->Take();
    return std::chrono::duration<double>(end - begin).count();
  }

  void ForgetStreams() { streams_.clear(); }
  int64_t decode_tokens() const { return decode_tokens_; }
  int64_t prefill_tokens() const { return prefill_tokens_; }

 private:
  static constexpr int64_t kStreamCapacity = 64;

  static EngineOptions Options(int64_t sequences, int64_t max_tokens, bool prefix_cache) {
    EngineOptions options;
    options.max_batch_tokens = max_tokens;
    options.max_prefill_tokens = max_tokens;
    options.max_running_requests = sequences;
    options.prefix_cache = prefix_cache;
    options.max_decode_stretch = 0;
    return options;
  }

  bench::NoopModel model_;
  const std::shared_ptr<RequestQueue> queue_;
  EngineLoop loop_;
  std::vector<std::shared_ptr<TokenStream>> streams_;
  std::mt19937 random_;
  int64_t decode_tokens_ = 0;
  int64_t prefill_tokens_ = 0;
};

// Steps in which `range(0)` sequences decode and nothing else happens.
void DecodeStep(benchmark::State& state) {
  const int64_t sequences = state.range(0);
  Bench bench(sequences, sequences + 4096, /*prefix_cache=*/state.range(1) != 0);
  for (int64_t i = 0; i < sequences; ++i) bench.Submit(kPromptTokens, 1 << 20);
  int64_t before = 0;  // decode tokens
  for (int64_t prefilled = -1; prefilled < bench.prefill_tokens();) {
    prefilled = bench.prefill_tokens();
    bench.Step();
    before = bench.decode_tokens();
  }
  double seconds = 0;
  for (auto _ : state) {
    const double step = bench.Step();
    state.SetIterationTime(step);
    seconds += step;
  }
  const double tokens = static_cast<double>(bench.decode_tokens() - before);
  if (tokens != static_cast<double>(sequences * state.iterations())) {
    state.SkipWithError("not every step decoded every sequence");
    return;
  }
  state.counters["us_per_sequence"] = seconds / tokens * 1e6;
}
BENCHMARK(DecodeStep)
    ->ArgNames({"sequences", "cache"})
    ->ArgsProduct({{1, 256, 4096}, {0, 1}})
    ->Iterations(kSteps)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Steps that prefill uncached prompts, one after the other: the cost of hashing and publishing.
void PrefillStep(benchmark::State& state) {
  Bench bench(/*sequences=*/64, /*max_tokens=*/512, /*prefix_cache=*/state.range(0) != 0);
  double seconds = 0;
  for (auto _ : state) {
    bench.ForgetStreams();
    bench.Submit(/*prompt_tokens=*/512, /*new_tokens=*/1);
    const double step = bench.Step();
    state.SetIterationTime(step);
    seconds += step;
  }
  const double tokens = static_cast<double>(bench.prefill_tokens());
  state.counters["ns_per_prompt_token"] = seconds / tokens * 1e9;
}
BENCHMARK(PrefillStep)
    ->ArgName("cache")
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tlm

BENCHMARK_MAIN();
