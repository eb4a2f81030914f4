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
      for (int64_t row = 0; row < chunk.num_rows; ++row) {
        if (sequence.generates()) {
          finish = sequence.Append(0, /*max_context=*/1 << 20);
        } else {
          sequence.stream().PushRow({});
          finish = sequence.MarkRowDelivered();
        }
      }
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

  BlockPool pool;
  Scheduler scheduler;

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t next_number_ = 0;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_SCHEDULER_BENCH_H_
