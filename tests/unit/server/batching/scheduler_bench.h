// A scheduler without an engine around it.
#ifndef TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_
#define TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/prefix_cache.h"
#include "server/batching/scheduler.h"
#include "server/batching/sequence.h"

namespace tlm {

struct SchedulerLimits : EngineOptions {
  int64_t max_logits_rows = 64;
};

// No prompt counts as short.
inline SchedulerLimits Wide() {
  SchedulerLimits limits;
  limits.short_prompt_tokens = 0;
  return limits;
}
// The same but for one limit.
template <typename Limits>
SchedulerLimits WideBut(int64_t Limits::*limit, int64_t value) {
  SchedulerLimits limits = Wide();
  limits.*limit = value;
  return limits;
}

// (sequence, tokens) of each chunk.
inline std::vector<std::pair<Sequence*, int64_t>> Chunks(const StepPlan& plan) {
  std::vector<std::pair<Sequence*, int64_t>> chunks;
  for (const Chunk& chunk : plan.chunks) chunks.emplace_back(chunk.sequence, chunk.num_tokens);
  return chunks;
}

inline std::pair<Sequence*, int64_t> Of(Sequence* sequence, int64_t tokens) {
  return {sequence, tokens};
}

// A scheduler with its pool and sequences, and the part of the engine that carries plans out.
class SchedulerBench {
 public:
  explicit SchedulerBench(const SchedulerLimits& limits, int64_t blocks = 1000,
                          bool with_cache = false)
      : pool(blocks),
        cache(with_cache ? std::make_unique<PrefixCache>(pool) : nullptr),
        scheduler(limits, {.max_logits_rows = limits.max_logits_rows, .max_draft_rows = 8}, pool,
                  cache.get()) {}

  Sequence* Add(Request request) {
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), next_number_++));
    next_number_ += sequences_.back()->branches();
    scheduler.Add(*sequences_.back());
    return sequences_.back().get();
  }

  // As the engine does when a forward pass begins, and when its results are there; every drawn
  // token is 0. TakeResults returns what ended.
  void Launch(const StepPlan& plan) {
    for (const Chunk& chunk : plan.chunks) {
      chunk.sequence->MarkLaunched(chunk.num_tokens, kContext);
    }
  }
  std::vector<Sequence*> TakeResults(const StepPlan& plan) {
    std::vector<Sequence*> ended;
    for (const Chunk& chunk : plan.chunks) {
      Sequence& sequence = *chunk.sequence;
      if (sequence.state() == SequenceState::kFinished) continue;  // while it was computed
      std::optional<Finish> finish;
      for (int64_t row = 0; row < chunk.num_rows; ++row) finish = UseRow(sequence, &ended);
      if (finish.has_value()) End(sequence, &ended);
    }
    return ended;
  }

  std::vector<Sequence*> CarryOut(const StepPlan& plan) {
    Launch(plan);
    return TakeResults(plan);
  }
  StepPlan Step(int64_t max_long_prompt_tokens = 1 << 20, int64_t short_step_tokens = 1 << 20) {
    StepPlan plan = scheduler.Plan(max_long_prompt_tokens, short_step_tokens);
    CarryOut(plan);
    return plan;
  }

  // What the engine does with a sequence that is no longer wanted.
  void End(Sequence& sequence, std::vector<Sequence*>* ended = nullptr) {
    scheduler.Remove(sequence);
    sequence.End(absl::OkStatus(), {}, absl::UnixEpoch());
    if (ended != nullptr) ended->push_back(&sequence);
  }

  // Branches that became sequences since the last call.
  std::vector<Sequence*> TakeNewBranches() { return std::exchange(new_branches_, {}); }
  const std::vector<BlockCopy>& copies() const { return copies_; }

  BlockPool pool;
  const std::unique_ptr<PrefixCache> cache;
  Scheduler scheduler;

 private:
  static constexpr int64_t kContext = 1 << 20;

  std::optional<Finish> UseRow(Sequence& sequence, std::vector<Sequence*>* ended) {
    if (sequence.delivers_rows()) sequence.stream().PushRow({});
    if (!sequence.generates()) return sequence.MarkRowDelivered();
    if (sequence.WantedPosition(0) + 1 < sequence.prompt_tokens()) {
      sequence.stream().PushScored({});
      return sequence.MarkRowDelivered();
    }
    std::vector<std::unique_ptr<Sequence>> branches = sequence.TakeBranches();
    const int64_t tokens = sequence.WantedPosition(0) + 1;
    const std::optional<Finish> finish = SampleToken(sequence);
    if (cache != nullptr) sequence.PublishBlocks(tokens, *cache);
    for (auto& branch : branches) StartBranch(sequence, std::move(branch), ended);
    return finish;
  }

  std::optional<Finish> SampleToken(Sequence& sequence) {
    sequence.stream().PushToken({});
    return sequence.Append(0, kContext);
  }

  void StartBranch(Sequence& parent, std::unique_ptr<Sequence> taken,
                   std::vector<Sequence*>* ended) {
    sequences_.push_back(std::move(taken));
    Sequence& branch = *sequences_.back();
    new_branches_.push_back(&branch);
    if (SampleToken(branch).has_value()) return End(branch, ended);
    const std::optional<BlockCopy> copy = scheduler.AddBranch(parent, branch);
    if (copy.has_value()) copies_.push_back(*copy);
  }

  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t next_number_ = 0;
  std::vector<Sequence*> new_branches_;
  std::vector<BlockCopy> copies_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_
