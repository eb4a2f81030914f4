// Decides what the next step computes: a pure policy without device, thread or clock.
#ifndef TLM_SERVER_BATCHING_SCHEDULER_H_
#define TLM_SERVER_BATCHING_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/ops/batch.h"
#include "server/batching/engine_options.h"
#include "server/batching/sequence.h"
#include "server/batching/tenant_queues.h"

namespace tlm {

// A block whose contents must be copied to another one before the next step.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

// One step's work on one sequence. Prefill and decode differ only in their size.
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t first_position = 0;
  int64_t num_tokens = 0;  // >= 1
  int64_t num_rows = 0;    // results wanted from it
  bool decode = false;
  bool long_prompt = false;  // prefill that is limited for the sake of decodes
  int64_t num_draft = 0;     // draft tokens among num_tokens
};

struct StepPlan {
  std::vector<Chunk> chunks;        // a sequence has at most one
  std::vector<Sequence*> admitted;  // no longer waiting; most are among the chunks
  // Sums over the chunks.
  int64_t decodes = 0;
  int64_t prefill_tokens = 0;      // all but the first token of each decode
  int64_t long_prompt_tokens = 0;  // part of prefill_tokens
  int64_t rows = 0;
  int64_t draft_tokens = 0;  // each gives one row more
  // The limits that Plan was given.
  int64_t max_long_prompt_tokens = 0;
  int64_t short_step_tokens = 0;
};

// Tracks the sequences that are neither finished nor removed, waiting or running. A place is one of
// the max_running sequence slots; a sequence takes one for itself and one for each branch to come.
//
//   Add -> waiting --(blocks for all its tokens)--> running -> Remove
//             ^                                        |  ^
//             +-------- preempted: blocks given back --+  +- AddBranch, with its parent's blocks
//
// A step. Decodes come first. Except for what Shares says, every step has all of them: no more
// places are taken than a step has tokens and rows. Then come prefills, running and waiting
// sequences in the single order of PrefillOrder: priority, the tenant that has had the fewest
// tokens, deadline, arrival. Next to decodes, long prompts get at most what Plan's caller allows;
// short prompts overtake the long ones that must wait for the next step.
//
// Admission. A waiting sequence first becomes a user of the cached blocks that begin it. It runs
// when there are places for it and its branches, and blocks for the rest of its known tokens plus
// one for each output that runs or will branch off, so that outputs need not preempt it at once. If
// it does not fit, it returns everything and becomes the head-of-line blocker: nothing of its
// priority or a lower one is admitted before it, except more urgent requests of its own tenant and
// tenants with a smaller share.
//
// Preemption. A running decode that lacks a block preempts a parked sequence. If none is parked, it
// preempts one of the lowest priority: the newest sequence of the tenant that holds the most
// blocks. If that is the decode itself, it sits out. So within a tenant the oldest sequence of the
// highest priority always proceeds, as long as any sequence fits the pool alone, and no two
// sequences preempt each other in turn.
//
// Shares. A tenant's share is max(fraction of places, fraction of blocks) that its sequences of one
// priority hold. A waiting sequence does not wait if another tenant holds more than its tenant
// would with it: running sequences of tenants that hold more are preempted until it fits, of the
// lowest priority first and never above its own. No tenant gets more than others this way, so
// preemption ends. A sequence that was preempted before, or that needs more than half of the
// blocks, yields only after it has progressed since its admission. A short prompt gets the step to
// itself: the work of larger tenants waits for the next step. For some steps after that, room and
// short steps are kept for the tenant's next requests. With a single tenant nothing yields.
//
// Parking. A running sequence is parked when its token stream has no room for its next result. It
// is in no step and loses its blocks and places to sequences that need them; then it waits for room
// before it is admitted again.
//
// One step ahead. A plan may be made while the previous step computes: sequences with rows in
// flight are planned as if the rows had arrived; sequences that end with these rows are not planned
// (see Sequence). TopUp then corrects what the plan could not know.
//
// Forced and draft tokens of a decoding sequence, all but the first token, count as tokens of a
// long prompt.
//
// Not thread-safe. The caller owns the sequences, which do not move until they are removed.
class Scheduler {
 public:
  // `limits`: the model's; only its row limits are used. `cache`: the pool's prefix cache, or null.
  Scheduler(const EngineOptions& options, const BatchLimits& limits, BlockPool& pool,
            PrefixCache* cache);

  void Add(Sequence& sequence);
  // Adds a branch that has sampled its first token and whose parent has computed the prompt. It
  // runs at once; make the returned copy, if any, before the next step. Without a free place or
  // block it waits like any sequence and computes its tokens itself.
  std::optional<BlockCopy> AddBranch(Sequence& parent, Sequence& branch);
  // Accepts a sequence in any state, known or not; returns its blocks to the pool.
  void Remove(Sequence& sequence);

  // Plans the next step and takes its blocks. Long prompts get at most `max_long_prompt_tokens`,
  // within the limits for all tokens; 0 leaves no prefill at all, but counts only next to decodes.
  // `short_step_tokens`: the prefill tokens of a step while steps are kept short for other tenants.
  // The plan is empty when every sequence waits for its reader or ends with rows in flight. Before
  // the next Plan, the caller marks the chunks launched or computed, or removes the sequences.
  StepPlan Plan(int64_t max_long_prompt_tokens = std::numeric_limits<int64_t>::max(),
                int64_t short_step_tokens = std::numeric_limits<int64_t>::max());
  // Removes from the last plan what no longer runs (those sequences must still exist). Fills the
  // step's remaining tokens and rows with sequences that were added, or got room, since. Preempts
  // parked sequences, and running ones for shares.
  void TopUp(StepPlan& plan);
  // Removes a sequence from the last plan because the previous step gives it no token.
  void RemoveFromPlan(const Sequence& sequence, StepPlan& plan);
  // The first half of TopUp; call it before ended sequences are destroyed.
  static void DropEnded(StepPlan& plan);

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return queues_.waiting(); }
  // Returns the number of parked sequences when the last plan was made.
  int64_t parked() const { return num_parked_; }
  // Returns the number of running sequences that decode and are not parked: the next plan serves
  // them first. Takes time to count.
  int64_t decoding() const;
  int64_t preemptions() const { return preemptions_; }

 private:
  // Priority, then age: seniors keep their blocks.
  struct BySeniority {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // The scheduler's record of a running sequence.
  struct RunningInfo {
    TenantQueue* queue = nullptr;
    int64_t places = 0;         // places it takes, branches to come included
    int64_t planned = 0;        // number of the last plan with a chunk of it
    int64_t tokens = 0;         // its length when it was admitted
    bool short_prompt = false;  // it was short when it was admitted
    bool prefilling = false;    // it is in its queue's `prefilling`
    bool parked = false;
    bool keeps_room = false;  // when it ends, its tenant keeps room
  };
  using Running = std::map<Sequence*, RunningInfo, BySeniority>;
  // The waiting sequence that did not fit and that others wait for, and the room when it was last
  // tried.
  struct HeadOfLineBlocker {
    const TenantQueue* queue = nullptr;  // null: no blocker
    int64_t number = -1;
    int64_t available_blocks = 0;
    int64_t active_places = 0;
    int64_t tried = 0;  // number of the plan
  };

  // Resources of running sequences that are not parked.
  struct Holding {
    int64_t places = 0;
    double blocks = 0;  // a shared block is divided among its users
  };
  using Holdings = std::unordered_map<const TenantQueue*, Holding>;
  struct Room {
    int64_t places = 0;
    int64_t blocks = 0;
  };
  struct KeptRoom {
    Room room;
    int32_t priority = 0;
    int64_t since = 0;  // number of the plan
  };

  // scheduler.cc: what a step computes.
  void Extend(StepPlan& plan, bool may_preempt);
  void RefreshRunning();
  void AddDecodes(StepPlan& plan, bool may_preempt);
  // Gives decodes with forced or draft tokens more of these.
  void LengthenDecodes(StepPlan& plan);
  bool GrowByPreempting(Sequence& sequence, StepPlan& plan, bool may_preempt);
  // Removes the sequence's chunk and refunds its tenant's charge.
  static void TakeOut(const Sequence& sequence, const RunningInfo& info, StepPlan& plan);
  // Preempts a sequence that may have a chunk in the plan.
  void PreemptPlanned(Sequence& sequence, StepPlan& plan);
  void AddPrefills(StepPlan& plan);
  // `max_prefill_tokens`: the limit for all prefill tokens of the step.
  void AddPrefill(Sequence& sequence, int64_t max_prefill_tokens, StepPlan& plan);
  // Returns the most rows of the sequence's chunk, given the other chunks of the plan.
  int64_t MaxRows(const Sequence& sequence, const StepPlan& plan) const;
  // Call for a sequence that does not run yet.
  bool IsShort(const Sequence& sequence) const;

  // scheduler_admission.cc: which sequences run.
  // `plan`: sequences that yield are removed from it; null: no sequence yields.
  bool Admit(Sequence& sequence, StepPlan* plan);
  bool StillBlocked(const Sequence& sequence) const;
  bool MakeRoom(const Sequence& sequence, StepPlan* plan);
  // Returns the room that the sequence lacks besides `kept`, when `active` places are taken and
  // `available` blocks are free.
  Room Missing(const Sequence& sequence, const Room& kept, int64_t active, int64_t available) const;
  int64_t PlacesOf(const Sequence& sequence) const;
  int64_t ActivePlaces() const { return places_ - parked_places_; }
  void SetPlaces(RunningInfo& info, int64_t places, bool parked);
  static void SetPrefilling(Sequence& sequence, RunningInfo& info, bool prefilling);
  void Run(Sequence& sequence);
  void StopRunning(Running::iterator entry);
  void Preempt(Sequence& sequence);
  void PreemptParked();

  // scheduler_shares.cc: what each tenant may hold.
  Holdings Held() const;
  double ShareOf(const Holding& holding) const;
  // Returns the sequence's tenant's holding if the sequence were admitted.
  Holding HoldingWith(const Holdings& held, const Sequence& sequence);
  bool IsLarger(const Holding& a, const Holding& b) const;
  void AdmitSmaller(StepPlan& plan);
  // Returns the most prefill tokens of the step; fewer while requests may come that would wait for
  // its end.
  int64_t MaxPrefillTokens(const StepPlan& plan) const;
  void LeaveStepTo(const Sequence& smaller, StepPlan& plan);
  Sequence* NextSmaller();
  bool AnotherHoldsMore(const Holdings& held, const Sequence& waiting);
  // Returns the sequences to preempt; empty when preempting all candidates would not suffice.
  std::vector<Sequence*> Yielding(const Sequence& smaller, const Room& kept, ReleaseCount released);
  Running::reverse_iterator NextToYield(const Sequence& smaller, double share, bool by_places,
                                        const Holdings& held, const std::vector<Sequence*>& chosen);
  bool MayYield(const Sequence& sequence, const RunningInfo& info) const;
  Sequence* LeastEntitled();
  Room RoomOf(const std::string& tenant) const;
  void KeepRoom(const Sequence& sequence);
  void ForgetKeptRooms();
  Room KeptForOthers(const Sequence& sequence) const;

  const EngineOptions options_;
  const int64_t max_logits_rows_;
  const int64_t max_draft_rows_;
  // The most sequences that hold blocks: each may need a token and a row in a step.
  const int64_t max_running_;
  BlockPool& pool_;
  PrefixCache* const cache_;
  TenantQueues queues_;  // waiting and running sequences
  Running running_;      // seniors first
  int64_t plans_ = 0;
  int64_t preemptions_ = 0;
  std::optional<int64_t> last_left_;  // the last plan that larger tenants left to a smaller one
  HeadOfLineBlocker blocker_;
  std::map<std::string, KeptRoom> kept_rooms_;  // by tenant

  // Sums over the running sequences.
  int64_t places_ = 0;
  int64_t parked_places_ = 0;
  int64_t num_parked_ = 0;
  // Set by RefreshRunning; seniors first.
  std::vector<std::pair<Sequence*, RunningInfo*>> decodes_;
  std::vector<Sequence*> parked_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SCHEDULER_H_
