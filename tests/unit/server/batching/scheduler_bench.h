// A scheduler without an engine around it.
#ifndef TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_
#define TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "server/batching/scheduler.h"
#include "server/batching/sequence.h"

namespace tlm {

// A scheduler with its pool and sequences, and the part of the engine that carries plans out.
class SchedulerBench {
 public:
  explicit SchedulerBench(const SchedulerLimits& limits, int64_t blocks = 1000)
      : pool(blocks), scheduler(limits, pool) {}

  Sequence* Add(Request request) {
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), next_number_++));
    next_number_ += sequences_.back()->branches();
    scheduler.Add(*sequences_.back());
    return sequences_.back().get();
  }

  // As the engine does after a forward pass; every drawn token is 0. Returns what ended.
  std::vector<Sequence*> CarryOut(const StepPlan& plan) {
    std::vector<Sequence*> ended;
    for (const Chunk& chunk : plan.chunks) {
      Sequence& sequence = *chunk.sequence;
      sequence.MarkComputed(chunk.num_tokens);
      std::optional<Finish> finish;
      for (int64_t row = 0; row < chunk.num_rows; ++row) finish = UseRow(sequence, &ended);
      if (!finish.has_value()) continue;
      scheduler.Remove(sequence);
      ended.push_back(&sequence);
    }
    return ended;
  }
  StepPlan Step() {
    StepPlan plan = scheduler.Plan();
    CarryOut(plan);
    return plan;
  }

  // Branches that became sequences since the last call.
  std::vector<Sequence*> TakeNewBranches() { return std::exchange(new_branches_, {}); }
  const std::vector<BlockCopy>& copies() const { return copies_; }

  BlockPool pool;
  Scheduler scheduler;

 private:
  std::optional<Finish> UseRow(Sequence& sequence, std::vector<Sequence*>* ended) {
    if (sequence.delivers_rows()) sequence.stream().PushRow({});
    if (!sequence.generates() || sequence.WantedPosition(0) + 1 < sequence.target()) {
      return sequence.MarkRowDelivered();
    }
    for (auto& branch : sequence.TakeBranches()) {
      new_branches_.push_back(branch.get());
      sequences_.push_back(std::move(branch));
      Sequence& added = *new_branches_.back();
      if (added.Append(0, kContext).has_value()) {
        ended->push_back(&added);
      } else if (const auto copy = scheduler.AddBranch(sequence, added); copy.has_value()) {
        copies_.push_back(*copy);
      }
    }
    return sequence.Append(0, kContext);
  }

  static constexpr int64_t kContext = 1 << 20;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t next_number_ = 0;
  std::vector<Sequence*> new_branches_;
  std::vector<BlockCopy> copies_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_
