// Runs one set of requests under many schedules, which may not change what a caller sees.
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
#include "tests/golden/draft_sources.h"
#include "tests/golden/logits_book.h"
#include "tests/golden/random_requests.h"
#include "tests/support/block_model.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {

// The settings that vary.
struct Schedule {
  int threads = 1;
  int64_t kv_blocks = 64;  // few of them force preemption
  EngineOptions options;   // step and prefill budgets, running sequences, prefix cache
  int passes = 1;          // how often the set of requests runs: later runs find a warm prefix
                           // cache
  bool shuffled = false;   // requests come together, in any order; otherwise one after the other,
                           // alone
  int cancel_one_in = 0;   // outputs dropped at some moment; 0: none
  int resume_one_in = 0;   // outputs that another replica has begun; 0: none
  int claim_one_in = 0;    // outputs that are verified against right or wrong claims; 0: none
  // The draft source in addition to the sequences' own tokens, as options.speculation allows.
  Drafter drafter = Drafter::kNobody;
  int truth = 0;  // for Drafter::kKnown: see KnownDrafts

  std::string Describe() const {
    return fmt::format(
        "{} threads, {} blocks, {} tokens a step, {} of prefill, cache {}, {} passes, "
        "speculation {}, drafter {}, truth {}, {} draft tokens",
        threads, kv_blocks, options.max_batch_tokens, options.max_prefill_tokens,
        options.prefix_cache, passes, static_cast<int>(options.speculation),
        static_cast<int>(drafter), truth, options.max_draft_tokens);
  }
};

inline Schedule AloneSchedule() {
  Schedule schedule;
  schedule.options.prefix_cache = false;
  schedule.options.speculation = Speculation::kOff;
  return schedule;
}

// Sets mostly drafts, and claims in half of the schedules.
inline void Speculate(std::mt19937_64& random, Schedule& schedule) {
  static constexpr Speculation kWhen[] = {Speculation::kOff, Speculation::kAuto,
                                          Speculation::kAlways, Speculation::kAlways,
                                          Speculation::kAlways};
  schedule.options.speculation = kWhen[random() % std::size(kWhen)];
  schedule.options.max_draft_tokens = 1 + static_cast<int64_t>(random() % 16);
  schedule.drafter = static_cast<Drafter>(random() % kDrafters);
  // Some of the known drafts are always right, some hardly ever.
  schedule.truth = static_cast<int>(std::min<uint64_t>(100, 20 + random() % 100));
  schedule.claim_one_in = random() % 2 == 0 ? 0 : 3;
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
  Speculate(random, schedule);
  return schedule;
}

// The results of every output, by request; nullopt where it was cancelled.
using Collected = CollectingReader::Collected;
using Outcomes = std::vector<std::vector<std::optional<Collected>>>;

// The tokens that a request claims for its output: some of its tokens, all of them, or more.
struct Claim {
  size_t tokens = 0;              // 0: nothing is claimed
  std::optional<size_t> changed;  // index of one of the output's own tokens, claimed to be another
};

// Returns the results of a request with this claim: its tokens up to the first that differs.
inline Collected Verified(const Collected& alone, const Claim& claim) {
  Collected expected = alone;
  if (claim.tokens == 0) return expected;
  const size_t tokens = claim.changed.has_value() ? *claim.changed + 1 : claim.tokens;
  FinishReason& reason = expected.ends.at(0).reason;
  // The claim ends before the engine asks for the mask that allows no token.
  const bool ends_after =
      reason == FinishReason::kConstraint || reason == FinishReason::kConstraintComplete;
  if (claim.changed.has_value() || tokens < alone.tokens.size() ||
      (tokens == alone.tokens.size() && ends_after)) {
    reason = FinishReason::kRowsComplete;
  }
  expected.tokens.resize(std::min(tokens, alone.tokens.size()));
  return expected;
}

// Counts what the schedules did, to see that they were worth running.
struct ScheduleCounts {
  int64_t preemptions = 0;
  int64_t copied_blocks = 0;
  int64_t cached_tokens = 0;
  int64_t resumed = 0;
  int64_t launches_ahead = 0;  // launches before the results of the step before
  int64_t constrained = 0;     // tokens of constrained outputs
  // Draft tokens, draft tokens sampled as guessed, and draft tokens in outputs with constraints,
  // penalties or preemptions.
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t constrained_drafted = 0;
  int64_t constrained_accepted = 0;
  int64_t penalised_drafted = 0;
  int64_t penalised_accepted = 0;
  int64_t preempted_drafted = 0;
  int64_t ends_in_drafts = 0;     // outputs that ended with a token of a draft; without claims
  int64_t speculative = 0;        // schedules with drafts
  int64_t ahead_with_drafts = 0;  // launches ahead in these schedules
  int64_t confirmed = 0;          // claims that were not changed and must be confirmed
  int64_t refuted = 0;            // claims with a changed token, which must be refuted

  void Add(const Request& request, const SpeculationCounts& counts, int64_t preemptions) {
    drafted += counts.drafted;
    accepted += counts.accepted;
    if (request.generate()->constraint.has_value()) {
      constrained_drafted += counts.drafted;
      constrained_accepted += counts.accepted;
    }
    if (request.generate()->sampling.has_penalties()) {
      penalised_drafted += counts.drafted;
      penalised_accepted += counts.accepted;
    }
    if (preemptions > 0) preempted_drafted += counts.drafted;
  }
  ScheduleCounts& operator+=(const ScheduleCounts& other) {
    preemptions += other.preemptions;
    copied_blocks += other.copied_blocks;
    cached_tokens += other.cached_tokens;
    resumed += other.resumed;
    launches_ahead += other.launches_ahead;
    constrained += other.constrained;
    drafted += other.drafted;
    accepted += other.accepted;
    constrained_drafted += other.constrained_drafted;
    constrained_accepted += other.constrained_accepted;
    penalised_drafted += other.penalised_drafted;
    penalised_accepted += other.penalised_accepted;
    preempted_drafted += other.preempted_drafted;
    ends_in_drafts += other.ends_in_drafts;
    speculative += other.speculative;
    ahead_with_drafts += other.ahead_with_drafts;
    confirmed += other.confirmed;
    refuted += other.refuted;
    return *this;
  }
};

struct ScheduleRun {
  std::vector<Outcomes> passes;
  std::vector<std::vector<Claim>> claims;  // for each pass, by request
  ScheduleCounts counts;
};

// The parts that the engine runs on, sound or with a mistake: the processor or another backend, and
// wrappers of its ops and of the model.
struct Machine {
  std::function<absl::StatusOr<std::unique_ptr<Ops>>(const Schedule&)> backend;
  std::function<std::unique_ptr<Ops>(Ops&)> ops;
  std::function<std::unique_ptr<LanguageModel>(LanguageModel&)> model;
};

// A model and the number of its requests.
struct ScheduledModel {
  ModelConfig config;
  DType dtype = DType::kF32;  // type of weights, keys and values
  int requests = 0;
  int max_outputs = kMaxOutputs;
  WeightFormat format = WeightFormat::kAsGiven;
  std::vector<DType> blocks = {};  // types of the matrices: see BlockModel; empty: they have
                                   // `dtype`
  std::optional<DType> kv = {};    // type of keys and values instead of `dtype`

  DType kv_dtype() const { return kv.value_or(dtype); }
};

// Runs the same requests on a model under any schedule.
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

  // Runs the random requests of `request_seed`. `random` decides what the schedule leaves open; the
  // first tokens of resumed outputs, claims and known drafts come from `alone`.
  ScheduleRun Execute(const Schedule& schedule, uint64_t request_seed, std::mt19937_64& random,
                      const Outcomes* alone = nullptr) {
    const auto backend = MakeBackend(schedule);
    EXPECT_THAT(backend, IsOk());
    const std::unique_ptr<Ops> wrong = machine_.ops ? machine_.ops(**backend) : nullptr;
    const BatchLimits limits{.max_tokens = schedule.options.max_batch_tokens,
                             .max_sequences = schedule.options.max_running_requests,
                             .max_logits_rows = 16,
                             .max_context = kContext,
                             .max_draft_rows = 16};
    auto model = TransformerLM::Load(
        scheduled_.config, weights(), wrong ? *wrong : **backend, limits,
        {.num_blocks = schedule.kv_blocks, .dtype = scheduled_.kv_dtype()}, scheduled_.format);
    EXPECT_THAT(model, IsOk());
    RecordingModel recording(**model, book_, kStopIds);
    const std::unique_ptr<LanguageModel> changed =
        machine_.model ? machine_.model(recording) : nullptr;
    const std::unique_ptr<DraftSource> drafts = MakeDrafts(schedule, request_seed, alone);
    auto engine = Engine::Start(changed ? *changed : recording, schedule.options,
                                *Clock::Monotonic(), /*metrics=*/nullptr, drafts.get());
    EXPECT_THAT(engine, IsOk());
    ScheduleRun run;
    for (int pass = 0; pass < schedule.passes; ++pass) {
      RunOnce(**engine, schedule, request_seed, random, alone, run);
    }
    EXPECT_TRUE((*engine)->WaitUntilIdle(absl::Seconds(30)));
    EXPECT_EQ((*engine)->Stats().kv_blocks_used, 0);
    run.counts.preemptions = (*engine)->Stats().preemptions;
    run.counts.copied_blocks = recording.copies();
    run.counts.launches_ahead = recording.launches_ahead();
    if (schedule.claim_one_in == 0) run.counts.ends_in_drafts = recording.ends_in_drafts();
    if (run.counts.drafted > 0) {
      run.counts.speculative = 1;
      run.counts.ahead_with_drafts = run.counts.launches_ahead;
    }
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
    Claim claim;
  };

  // Returns null if nothing guesses.
  std::unique_ptr<DraftSource> MakeDrafts(const Schedule& schedule, uint64_t request_seed,
                                          const Outcomes* alone) {
    if (schedule.options.speculation == Speculation::kOff) return nullptr;
    switch (schedule.drafter) {
      case Drafter::kNobody:
        return nullptr;
      case Drafter::kKnown:
        return alone == nullptr ? nullptr : MakeKnownDrafts(schedule.truth, request_seed, *alone);
      case Drafter::kOtherModel:
        if (!other_.has_value()) other_.emplace(scheduled_.config, DType::kF32, /*seed=*/43);
        return ModelDrafts::Load(scheduled_.config, other_->weights(), DraftLimits(schedule),
                                 {.num_blocks = schedule.kv_blocks, .dtype = DType::kF32});
      case Drafter::kSameModel:
      case Drafter::kGreedyModel:
        return ModelDrafts::Load(scheduled_.config, weights(), DraftLimits(schedule),
                                 {.num_blocks = schedule.kv_blocks, .dtype = scheduled_.kv_dtype()},
                                 scheduled_.format, schedule.drafter == Drafter::kGreedyModel);
    }
    return nullptr;
  }
  std::unique_ptr<DraftSource> MakeKnownDrafts(int truth, uint64_t request_seed,
                                               const Outcomes& alone) const {
    auto drafts = std::make_unique<KnownDrafts>(truth, scheduled_.config.vocab_size);
    const std::vector<Submitted> requests = MakeRequests(request_seed);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (size_t output = 0; output < alone[i].size(); ++output) {
        drafts->Add(requests[i].request.prompt, alone[i][output]->token_ids(),
                    static_cast<uint32_t>(output));
      }
    }
    return drafts;
  }
  static BatchLimits DraftLimits(const Schedule& schedule) {
    return {.max_tokens = 64,
            .max_sequences = schedule.options.max_running_requests,
            .max_logits_rows = schedule.options.max_running_requests,
            .max_context = kContext};
  }

  // Makes the requests of a seed, with their token streams.
  std::vector<Submitted> MakeRequests(uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Submitted> all(scheduled_.requests);
    for (int i = 0; i < scheduled_.requests; ++i) {
      int outputs = 0;
      Request& request = all[i].request;
      request =
          RandomRequest(random, scheduled_.config.vocab_size, i, scheduled_.max_outputs, &outputs);
      all[i].cancelled.assign(outputs, false);
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

  // Claims the rest of the output, or other tokens.
  void MakeClaim(const Collected& alone, std::mt19937_64& random, Submitted* submitted) const {
    const size_t begun = submitted->begun.size();
    std::vector<int32_t> ids = alone.token_ids();
    if (begun == ids.size()) return;
    const auto vocab = static_cast<uint64_t>(scheduled_.config.vocab_size);
    switch (random() % 6) {
      case 0:
        break;
      case 1:
        ids.resize(begun + 1 + random() % (ids.size() - begun));
        break;
      case 2:
        for (int i = 0; i < 3; ++i) ids.push_back(static_cast<int32_t>(random() % vocab));
        break;
      default:
        const size_t changed = begun + random() % (ids.size() - begun);
        ids[changed] = static_cast<int32_t>(
            (static_cast<uint64_t>(ids[changed]) + 1 + random() % (vocab - 1)) % vocab);
        submitted->claim.changed = changed;
    }
    submitted->claim.tokens = ids.size();
    submitted->request.generate()->claimed.assign(ids.begin() + static_cast<ptrdiff_t>(begun),
                                                  ids.end());
    // A claim takes all rows of a step.
    submitted->readers[0] = CollectingReader::Create();
    submitted->request.stream = submitted->readers[0]->stream();
  }

  void RunOnce(Engine& engine, const Schedule& schedule, uint64_t request_seed,
               std::mt19937_64& random, const Outcomes* alone, ScheduleRun& run) const {
    std::vector<Submitted> requests = MakeRequests(request_seed);
    std::vector<size_t> order(requests.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (schedule.shuffled) std::shuffle(order.begin(), order.end(), random);
    const auto one_in = [&random](int n) { return n > 0 && random() % n == 0; };
    for (const size_t i : order) {
      Submitted& submitted = requests[i];
      const Request& request = submitted.request;
      if (alone != nullptr && request.generate() != nullptr && request.branch_streams.empty() &&
          !request.generate()->score_prompt) {
        if (one_in(schedule.resume_one_in)) {
          BeginElsewhere(*(*alone)[i][0], random, &submitted);
          ++run.counts.resumed;
        }
        if (one_in(schedule.claim_one_in)) MakeClaim(*(*alone)[i][0], random, &submitted);
      }
      EXPECT_THAT(engine.Submit(Request(request)), IsOk());
      // The following requests find it waiting, or running.
      if (one_in(3)) submitted.readers[0]->WaitUntil(HasResults);
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        if (!schedule.shuffled) submitted.readers[output]->WaitForEnd();
        if (!one_in(schedule.cancel_one_in)) continue;
        submitted.cancelled[output] = true;
        submitted.readers[output]->stream()->Detach();
      }
    }
    Collect(requests, run);
  }

  static bool HasResults(const Collected& collected) {
    return !collected.tokens.empty() || !collected.rows.empty() || !collected.scored.empty() ||
           !collected.ends.empty();
  }

  static void Collect(const std::vector<Submitted>& requests, ScheduleRun& run) {
    Outcomes& outcomes = run.passes.emplace_back();
    std::vector<Claim>& claims = run.claims.emplace_back();
    for (const Submitted& submitted : requests) {
      auto& outputs = outcomes.emplace_back();
      claims.push_back(submitted.claim);
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        Collected collected = submitted.readers[output]->WaitForEnd();
        if (submitted.cancelled[output]) {
          outputs.emplace_back();
          continue;
        }
        if (submitted.request.generate() != nullptr) Count(submitted, collected, run.counts);
        if (output == 0) run.counts.cached_tokens += collected.starts.at(0).cached_prompt_tokens;
        collected.tokens.insert(collected.tokens.begin(), submitted.begun.begin(),
                                submitted.begun.end());
        outputs.push_back(std::move(collected));
      }
    }
  }
  static void Count(const Submitted& submitted, const Collected& collected,
                    ScheduleCounts& counts) {
    const StreamEnd& end = collected.ends.at(0);
    if (submitted.request.generate()->constraint.has_value()) {
      counts.constrained += static_cast<int64_t>(collected.tokens.size());
    }
    counts.Add(submitted.request, end.speculation, end.preemptions);
    if (submitted.claim.tokens > 0) {
      ++(submitted.claim.changed.has_value() ? counts.refuted : counts.confirmed);
    }
  }

  const ScheduledModel scheduled_;
  std::optional<RandomModel> floats_;
  std::optional<BlockModel> in_blocks_;  // instead of floats_
  std::optional<RandomModel> other_;     // created when it is needed
  Machine machine_;
  LogitsBook book_;
};

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_SCHEDULES_H_
