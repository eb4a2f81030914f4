// A language model that computes nothing, to measure the server around it.
#ifndef TLM_TESTS_BENCHMARKS_NOOP_MODEL_H_
#define TLM_TESTS_BENCHMARKS_NOOP_MODEL_H_

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "model/transformer_lm/language_model.h"
#include "tests/benchmarks/noop_server.h"
#include "tests/support/host_sampling.h"

namespace tlm::bench {

// All logits are equal. Names the thread that calls it kEngineThreadName. Not thread-safe.
class NoopModel : public LanguageModel {
 public:
  static constexpr int64_t kVocabSize = 64;

  // Limits itself to `rows_per_second` rows of logits (tokens), waiting as if for a device; 0 = no
  // limit.
  NoopModel(const BatchLimits& limits, int64_t num_kv_blocks, double rows_per_second)
      : limits_(limits),
        num_kv_blocks_(num_kv_blocks),
        seconds_per_row_(rows_per_second > 0 ? 1 / rows_per_second : 0),
        logits_(static_cast<size_t>(limits.max_logits_rows * kVocabSize)) {}

  int64_t vocab_size() const override { return kVocabSize; }
  const BatchLimits& limits() const override { return limits_; }
  int64_t num_kv_blocks() const override { return num_kv_blocks_; }

  void Launch(const Batch& batch) override {
    if (!named_) pthread_setname_np(pthread_self(), kEngineThreadName);
    named_ = true;
    launched_ = &batch;
  }
  absl::StatusOr<BatchResult> Wait() override {
    const Batch& batch = *launched_;
    if (seconds_per_row_ > 0) WaitFor(batch.logits_rows.size());
    return BatchResult{
        .logits = std::span<const float>(logits_).first(batch.host_rows.size() * kVocabSize),
        .tokens = SampleAll(batch.jobs, logits_, kVocabSize)};
  }
  absl::Status CopyKvBlock(int32_t from, int32_t to) override { return absl::OkStatus(); }

 private:
  using SteadyClock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMaxArrears{10};

  // Waits until a device of that rate would be done. Later waits compensate for one that took too
  // long, so that the rate holds with imprecise timers.
  void WaitFor(size_t rows) {
    const std::chrono::duration<double> time(seconds_per_row_ * static_cast<double>(rows));
    ready_ = std::max(ready_, SteadyClock::now() - kMaxArrears) +
             std::chrono::duration_cast<SteadyClock::duration>(time);
    std::this_thread::sleep_until(ready_);
  }

  const BatchLimits limits_;
  const int64_t num_kv_blocks_;
  const double seconds_per_row_;
  const std::vector<float> logits_;
  SteadyClock::time_point ready_;
  bool named_ = false;
  const Batch* launched_ = nullptr;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_NOOP_MODEL_H_
