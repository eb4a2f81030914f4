// Decides what the next step computes: pure policy without device, thread or clock.
#ifndef TLM_SERVER_BATCHING_SCHEDULER_H_
#define TLM_SERVER_BATCHING_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "server/batching/sequence.h"

namespace tlm {

struct SchedulerLimits {
  int64_t max_batch_tokens = 0;       // of one step
  int64_t max_prefill_tokens = 0;     // of one step, summed over all prefilling sequences
  int64_t max_running_sequences = 0;  // that hold blocks
  int64_t max_logits_rows = 0;        // of one step
};

// A block whose contents another one needs before the next step.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

// What one step computes of one sequence: prefill and decode are the same thing.
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t first_position = 0;
  int64_t num_tokens = 0;  // >= 1
  int64_t num_rows = 0;    // results wanted from it
};

struct StepPlan {
  std::vector<Chunk> chunks;        // decodes, then prefills; a sequence has at most one
  std::vector<Sequence*> admitted;  // left the waiting ones; mostly among the chunks
};

// Knows the sequences that are neither finished nor removed, waiting or running.
//
//   Add -> waiting --(blocks for all its tokens)--> running -> Remove
//             ^                                        |  ^
//             +-------- preempted: blocks freed -------+  +- AddBranch, with its parent's blocks
//
// Decodes come first and all of them are in every step: no more sequences run than a step has
// tokens and rows for, those that running ones will branch into included. Then prefills, running
// and waiting ones in one order: priority, earliest deadline, arrival. A waiting sequence is
// admitted when there are places for it and its branches, and the blocks for all its known tokens
// are free and one more for each output that runs or will branch off, so that they need not preempt
// it at once; nothing overtakes one that does not fit. A running decode without a free block takes
// those of a parked sequence, or of the newest of the lowest priority if that is not itself;
// otherwise it sits out. So the oldest of the highest priority always goes on, as long as any
// sequence fits the pool alone, and no two preempt each other in turn.
//
// Parked is a running Forward sequence whose mailbox has no room for the row it needs next. It
// loses its blocks to whoever needs them, and waits for room before it is admitted again.
//
// Not thread-safe. Sequences belong to the caller and stay where they are until removed.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, BlockPool& pool);

  void Add(Sequence& sequence);
  // A branch that has drawn its first token; its parent, running, has computed the prompt. It runs
  // at once; the copy, if any, must be made before the next step. Without a place or a block for
  // it, it waits as any other and computes its tokens itself.
  std::optional<BlockCopy> AddBranch(const Sequence& parent, Sequence& branch);
  // In whatever state; frees its blocks.
  void Remove(Sequence& sequence);
  // The next step's work, blocks taken. Empty only when every sequence waits for its reader. The
  // caller marks the chunks computed, or removes the sequences, before it plans again.
  StepPlan Plan();

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  // Priority, then age: who keeps its blocks.
  struct BySeniority {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // Priority, then deadline, then age: who is prefilled first.
  struct ByUrgency {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // What is left of the step.
  struct Budget {
    int64_t tokens;
    int64_t prefill_tokens;
    int64_t rows;
  };

  void PlanDecodes(Budget& budget, StepPlan& plan);
  void PlanPrefills(Budget& budget, StepPlan& plan);
  void AddPrefill(Sequence& sequence, Budget& budget, StepPlan& plan) const;
  bool GrowByPreempting(Sequence& sequence);
  Sequence* ChooseVictim(const Sequence& for_whom) const;
  bool Admit(Sequence& sequence);
  bool MakeRoom(const Sequence& sequence);
  void Run(Sequence& sequence);
  // Places among the running ones that it takes or will branch into.
  int64_t PlacesOf(const Sequence& sequence) const;
  int64_t PlacesTaken() const;
  void Preempt(Sequence& sequence);

  const SchedulerLimits limits_;
  BlockPool& pool_;
  std::set<Sequence*, ByUrgency> waiting_;
  std::set<Sequence*, BySeniority> running_;
  int64_t preemptions_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SCHEDULER_H_
