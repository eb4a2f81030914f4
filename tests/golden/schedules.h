// One set of requests under many schedules: what the engine may do differently without a caller
// being able to tell.
#ifndef TLM_TESTS_GOLDEN_SCHEDULES_H_
#define TLM_TESTS_GOLDEN_SCHEDULES_H_

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/config/model_config.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/batching/engine.h"
#include "tests/golden/logits_book.h"
#include "tests/golden/random_requests.h"
#include "tests/support/block_model.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {

// What is varied.
struct Schedule {
  int threads = 1;
  int64_t kv_blocks = 64;  // few of them force preemption
  EngineOptions options;   // step and prefill budgets, running sequences, prefix cache
  int passes = 1;          // the set of requests again and again: the prefix cache is warm then
  bool shuffled = false;   // requests come together, in any order; else one after the other, alone
  int cancel_one_in = 0;   // outputs dropped at some moment; 0 = none
  int resume_one_in = 0;   // outputs that another replica has begun; 0 = none

  std::string Describe() const {
    return fmt::format(
        "{} threads, {} blocks, {} tokens a step, {} of prefill, cache {}, {} passes", threads,
        kv_blocks, options.max_batch_tokens, options.max_prefill_tokens, options.prefix_cache,
        passes);
  }
};

inline Schedule AloneSchedule() {
  Schedule schedule;
  schedule.options.prefix_cache = false;
  return schedule;
}

inline Schedule RandomSchedule(std::mt19937_64& random) {
  Schedule schedule;
  schedule.threads = 1 + static_cast<int>(random() % 3);
  // One sequence alone always fits.
  schedule.kv_blocks = random() % 2 == 0 ? 4 + static_cast<int64_t>(random() % 6) : 64;
  schedule.options.max_batch_tokens = 8 + static_cast<int64_t>(random() % 300);
  schedule.options.max_prefill_tokens = 1 + static_cast<int64_t>(random() % 200);
  schedule.options.max_running_requests = kMaxOutputs + static_cast<int64_t>(random() % 6);
  schedule.options.prefix_cache = random() % 4 != 0;
  schedule.options.max_decode_stretch = random() % 2 == 0 ? 0 : 1.5;
  schedule.options.short_prompt_tokens = random() % 2 == 0 ? 0 : 64;
  schedule.passes = random() % 3 == 0 ? 2 : 1;
  schedule.shuffled = true;
  schedule.cancel_one_in = 6;
  schedule.resume_one_in = 5;
  return schedule;
}

// Every output's results by request, nothing where it was cancelled.
using Collected = CollectingReader::Collected;
using Outcomes = std::vector<std::vector<std::optional<Collected>>>;

// What the schedules did, to see that they were worth running.
struct ScheduleCounts {
  int64_t preemptions = 0;
  int64_t copied_blocks = 0;
  int64_t cached_tokens = 0;
  int64_t resumed = 0;
  int64_t launches_ahead = 0;  // of the results of the step before
  int64_t constrained = 0;     // tokens of constrained outputs

  ScheduleCounts& operator+=(const ScheduleCounts& other) {
    preemptions += other.preemptions;
    copied_blocks += other.copied_blocks;
    cached_tokens += other.cached_tokens;
    resumed += other.resumed;
    launches_ahead += other.launches_ahead;
    constrained += other.constrained;
    return *this;
  }
};

struct ScheduleRun {
  std::vector<Outcomes> passes;
  ScheduleCounts counts;
};

// What the engine runs on: the processor or another backend, and what stands between, sound or with
// a mistake.
struct Machine {
  std::function<absl::StatusOr<std::unique_ptr<Ops>>(const Schedule&)> backend;
  std::function<std::unique_ptr<Ops>(Ops&)> ops;
  std::function<std::unique_ptr<LanguageModel>(LanguageModel&)> model;
};

// A model and how many requests it is asked.
struct ScheduledModel {
  ModelConfig config;
  DType dtype = DType::kF32;  // of weights, keys and values
  int requests = 0;
  int max_outputs = kMaxOutputs;
  WeightFormat format = WeightFormat::kAsGiven;
  std::vector<DType> blocks = {};  // of the matrices: see BlockModel; none: they have `dtype`
};

// A model and the requests it is asked, whatever the schedule.
class ScheduleRunner {
 public:
  static constexpr int64_t kContext = 256;

  explicit ScheduleRunner(const ScheduledModel& scheduled) : scheduled_(scheduled) {
    constexpr uint64_t kSeed = 42;
    if (scheduled.blocks.empty()) {
      floats_.emplace(scheduled.config, scheduled.dtype, kSeed);
    } else {
      in_blocks_.emplace(scheduled.config, scheduled.blocks, kSeed, /*reordered=*/true);
    }
  }
  ScheduleRunner(const char* config, DType dtype, int max_outputs = kMaxOutputs,
                 WeightFormat format = WeightFormat::kAsGiven)
      : ScheduleRunner(ScheduledModel{.config = SmallConfig(config),
                                      .dtype = dtype,
                                      .requests = 14,
                                      .max_outputs = max_outputs,
                                      .format = format}) {}

  void set_machine(Machine machine) { machine_ = std::move(machine); }
  const LogitsBook& book() const { return book_; }

  // Random requests of `request_seed`. `random` decides what the schedule leaves open; `alone` is
  // what the resumed outputs' first tokens are taken from.
  ScheduleRun Execute(const Schedule& schedule, uint64_t request_seed, std::mt19937_64& random,
                      const Outcomes* alone = nullptr) {
    const auto backend = MakeBackend(schedule);
    EXPECT_THAT(backend, IsOk());
    const std::unique_ptr<Ops> wrong = machine_.ops ? machine_.ops(**backend) : nullptr;
    const BatchLimits limits{.max_tokens = schedule.options.max_batch_tokens,
                             .max_sequences = schedule.options.max_running_requests,
                             .max_logits_rows = 16,
                             .max_context = kContext};
    auto model = TransformerLM::Load(
        scheduled_.config, weights(), wrong ? *wrong : **backend, limits,
        {.num_blocks = schedule.kv_blocks, .dtype = scheduled_.dtype}, scheduled_.format);
    EXPECT_THAT(model, IsOk());
    RecordingModel recording(**model, book_);
    const std::unique_ptr<LanguageModel> changed =
        machine_.model ? machine_.model(recording) : nullptr;
    auto engine =
        Engine::Start(changed ? *changed : recording, schedule.options, *Clock::Monotonic());
    EXPECT_THAT(engine, IsOk());
    ScheduleRun run;
    for (int pass = 0; pass < schedule.passes; ++pass) {
      run.passes.push_back(RunOnce(**engine, schedule, request_seed, random, alone, run.counts));
    }
    EXPECT_TRUE((*engine)->WaitUntilIdle(absl::Seconds(30)));
    EXPECT_EQ((*engine)->Stats().kv_blocks_used, 0);
    run.counts.preemptions = (*engine)->Stats().preemptions;
    run.counts.copied_blocks = recording.copies();
    run.counts.launches_ahead = recording.launches_ahead();
    return run;
  }

 private:
  const ModelWeights& weights() const {
    return in_blocks_.has_value() ? in_blocks_->weights() : floats_->weights();
  }

  absl::StatusOr<std::unique_ptr<Ops>> MakeBackend(const Schedule& schedule) const {
    if (machine_.backend) return machine_.backend(schedule);
    return CpuOps::Create(schedule.threads);
  }

  struct Submitted {
    Request request;
    std::vector<std::shared_ptr<CollectingReader>> readers;
    std::vector<bool> cancelled;
    std::vector<SampledToken> begun;  // sampled by another replica
    bool constrained = false;
  };

  // The same ones for the same seed, with their token streams.
  std::vector<Submitted> MakeRequests(uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Submitted> all(scheduled_.requests);
    for (int i = 0; i < scheduled_.requests; ++i) {
      int outputs = 0;
      Request& request = all[i].request;
      request =
          RandomRequest(random, scheduled_.config.vocab_size, i, scheduled_.max_outputs, &outputs);
      all[i].cancelled.assign(outputs, false);
      all[i].constrained =
          request.generate() != nullptr && request.generate()->constraint.has_value();
      const int64_t capacity = request.score() != nullptr ? TokenStream::kUnbounded : 1 + i % 5;
      for (int output = 0; output < outputs; ++output) {
        all[i].readers.push_back(CollectingReader::Create(capacity));
        if (output > 0) request.branch_streams.push_back(all[i].readers[output]->stream());
      }
      request.stream = all[i].readers[0]->stream();
    }
    return all;
  }

  // Lets another replica have sampled some of the output's tokens.
  static void BeginElsewhere(const Collected& alone, std::mt19937_64& random,
                             Submitted* submitted) {
    GenerateWork& work = *submitted->request.generate();
    const size_t count = random() % (alone.tokens.size() + 1);
    submitted->begun.assign(alone.tokens.begin(), alone.tokens.begin() + count);
    work.generated.clear();
    for (const SampledToken& token : submitted->begun) work.generated.push_back(token.id);
    if (!work.constraint.has_value()) return;
    for (const int32_t id : work.generated) {
      const std::vector<int32_t>& ends = work.constraint->end_ids;
      EXPECT_TRUE(work.constraint->matcher.Accept(id) ||
                  std::find(ends.begin(), ends.end(), id) != ends.end());
    }
  }

  static Outcomes RunOnce(Engine& engine, const Schedule& schedule, std::vector<Submitted> requests,
                          std::mt19937_64& random, const Outcomes* alone, ScheduleCounts& counts) {
    std::vector<size_t> order(requests.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (schedule.shuffled) std::shuffle(order.begin(), order.end(), random);
    const auto one_in = [&random](int n) { return n > 0 && random() % n == 0; };
    for (const size_t i : order) {
      Submitted& submitted = requests[i];
      const Request& request = submitted.request;
      if (alone != nullptr && request.generate() != nullptr && request.branch_streams.empty() &&
          !request.generate()->score_prompt && one_in(schedule.resume_one_in)) {
        BeginElsewhere(*(*alone)[i][0], random, &submitted);
        ++counts.resumed;
      }
      EXPECT_THAT(engine.Submit(std::move(submitted.request)), IsOk());
      // What follows finds it waiting, or running.
      if (one_in(3)) submitted.readers[0]->WaitUntil(HasResults);
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        if (!schedule.shuffled) submitted.readers[output]->WaitForEnd();
        if (!one_in(schedule.cancel_one_in)) continue;
        submitted.cancelled[output] = true;
        submitted.readers[output]->stream()->Detach();
      }
    }
    return Collect(requests, counts);
  }
  Outcomes RunOnce(Engine& engine, const Schedule& schedule, uint64_t request_seed,
                   std::mt19937_64& random, const Outcomes* alone, ScheduleCounts& counts) const {
    return RunOnce(engine, schedule, MakeRequests(request_seed), random, alone, counts);
  }

  static bool HasResults(const Collected& collected) {
    return !collected.tokens.empty() || !collected.rows.empty() || !collected.scored.empty() ||
           !collected.ends.empty();
  }

  static Outcomes Collect(const std::vector<Submitted>& requests, ScheduleCounts& counts) {
    Outcomes outcomes;
    for (const Submitted& submitted : requests) {
      auto& outputs = outcomes.emplace_back();
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        Collected collected = submitted.readers[output]->WaitForEnd();
        if (submitted.cancelled[output]) {
          outputs.emplace_back();
          continue;
        }
        if (submitted.constrained) {
          counts.constrained += static_cast<int64_t>(collected.tokens.size());
        }
        if (output == 0) counts.cached_tokens += collected.starts.at(0).cached_prompt_tokens;
        collected.tokens.insert(collected.tokens.begin(), submitted.begun.begin(),
                                submitted.begun.end());
        outputs.push_back(std::move(collected));
      }
    }
    return outcomes;
  }

  const ScheduledModel scheduled_;
  std::optional<RandomModel> floats_;
  std::optional<BlockModel> in_blocks_;  // or these
  Machine machine_;
  LogitsBook book_;
};

// Outputs that were not cancelled, and those of them that are not what they are alone.
struct Difference {
  int64_t compared = 0;
  int64_t different = 0;
  std::string first;
};

inline Difference Compare(const ScheduleRun& together, const Outcomes& alone) {
  Difference result;
  for (const Outcomes& outcomes : together.passes) {
    for (size_t i = 0; i < alone.size(); ++i) {
      for (size_t output = 0; output < alone[i].size(); ++output) {
        if (!outcomes[i][output].has_value()) continue;
        ++result.compared;
        if (Outcome(*outcomes[i][output]) == Outcome(*alone[i][output])) continue;
        if (result.different++ == 0) result.first = fmt::format("request {}.{}", i, output);
      }
    }
  }
  return result;
}

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_SCHEDULES_H_
