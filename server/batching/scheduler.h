// Decides what the next step computes: pure policy without device, thread or clock.
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
  bool decode = false;
  bool long_prompt = false;  // of one that is held back for the sake of decodes
  int64_t num_draft = 0;     // of the tokens: those of a draft
};

struct StepPlan {
  std::vector<Chunk> chunks;        // a sequence has at most one
  std::vector<Sequence*> admitted;  // left the waiting ones; mostly among the chunks
  // Sums over the chunks.
  int64_t decodes = 0;
  int64_t prefill_tokens = 0;      // and forced ones, but for the first one of a decode
  int64_t long_prompt_tokens = 0;  // of prefill_tokens
  int64_t rows = 0;
  int64_t draft_tokens = 0;  // each gives a row besides the sequence's one
  // What its maker allowed.
  int64_t max_long_prompt_tokens = 0;
  int64_t short_step_tokens = 0;
};

// Knows the sequences that are neither finished nor removed, waiting or running.
//
//   Add -> waiting --(blocks for all its tokens)--> running -> Remove
//             ^                                        |  ^
//             +-------- preempted: blocks given back --+  +- AddBranch, with its parent's blocks
//
// A step. Decodes come first and, but for what Shares says, all of them are in every step: no more
// sequences run than a step has tokens and rows for, those that running ones will branch into
// included. Then prefills, running and waiting ones in the one order of PrefillOrder: priority, the
// tenant that has had the least, deadline, arrival. Beside decodes long prompts get only what
// Plan's caller allows them; short ones pass by those that have to wait for the next step.
//
// Admission. A waiting sequence first becomes a user of the cached blocks that begin it. It runs
// when there are places for it and its branches, and blocks for the rest of its known tokens and
// one more for each output that runs or will branch off, so that they need not preempt it at once.
// If not, everything is given back, and nothing of its priority or a lower one is admitted before
// it, except what its own tenant wants more urgently, and tenants with a smaller share: it is the
// head-of-line blocker.
//
// Preemption. A running decode without a block takes those of a parked sequence, or else of the
// newest of the lowest priority, among those of the tenant that holds the most blocks, if that is
// not itself; otherwise it sits out. So of a tenant alone the oldest of the highest priority always
// goes on, as long as any sequence fits the pool alone, and no two preempt each other in turn.
//
// Shares. A tenant's share is what its sequences of one priority hold, of the places or of the
// blocks, whichever is more. Where another tenant holds more than a waiting sequence's tenant would
// with it, it does not wait: running sequences of tenants that hold more are preempted until it
// fits, of the lowest priority first and of none above its own. A tenant gets no more than others
// in that way, so that it ends. One that was preempted, or that needs more than half of the blocks,
// yields only when it has something done since it was admitted. If the prompt is short, the step is
// its own: what larger tenants would compute in it is left for the next one. For some steps after
// that, room and short steps are kept for those that come next. Of one tenant alone nothing yields.
//
// Parked is a running sequence whose token stream has no room for the result it computes next. It
// is in no step, loses its blocks and places to others that need them, and then waits for room
// before it is admitted again.
//
// One step ahead. A plan may be made while the step before it computes: sequences with rows on
// their way are planned as if these had arrived, those that end with them are not (see Sequence).
// TopUp then makes good for what the plan could not know.
//
// Forced tokens of a decoding sequence, and those of a draft, count as tokens of a long prompt, all
// but the first one.
//
// Not thread-safe. Sequences belong to the caller and stay where they are until removed.
class Scheduler {
 public:
  // `limits`: the model's, of which those of rows count. `cache`: null for none; the pool's.
  Scheduler(const EngineOptions& options, const BatchLimits& limits, BlockPool& pool,
            PrefixCache* cache);

  void Add(Sequence& sequence);
  // A branch that has sampled its first token; its parent has computed the prompt. It runs at once;
  // the copy, if any, must be made before the next step. Without a place or a block for it, it
  // waits as any other and computes its tokens itself.
  std::optional<BlockCopy> AddBranch(Sequence& parent, Sequence& branch);
  // In whatever state, known or not; gives its blocks back.
  void Remove(Sequence& sequence);

  // The next step's work, blocks taken. At most `max_long_prompt_tokens` of long prompts, within
  // what the limits allow of all; 0, which counts only beside decodes, leaves no prefill at all.
  // Empty when every sequence waits for its reader or ends with rows on their way. The caller marks
  // the chunks launched or computed, or removes the sequences, before it plans again.
  // `short_step_tokens`: prefill tokens of a step while steps are kept short for other tenants.
  StepPlan Plan(int64_t max_long_prompt_tokens = std::numeric_limits<int64_t>::max(),
                int64_t short_step_tokens = std::numeric_limits<int64_t>::max());
  // Takes out of the last plan what no longer runs (which must still exist), and adds with what is
  // left of the step's tokens and rows what was added, or has got room, since. Preempts parked
  // sequences, and for shares.
  void TopUp(StepPlan& plan);
  // Takes one that gets no token of the step before it out of the last plan.
  void RemoveFromPlan(const Sequence& sequence, StepPlan& plan);
  // The first half of TopUp: before ended sequences go away.
  static void DropEnded(StepPlan& plan);

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return queues_.waiting(); }
  // Of the running ones, when the last plan was made.
  int64_t parked() const { return num_parked_; }
  // Of the running ones without the parked: those that the next plan serves first. Counts them.
  int64_t decoding() const;
  int64_t preemptions() const { return preemptions_; }

 private:
  // Priority, then age: the order in which sequences keep their blocks.
  struct BySeniority {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  // What the scheduler knows of a running sequence.
  struct RunningInfo {
    TenantQueue* queue = nullptr;
    int64_t places = 0;         // it takes or will branch into
    int64_t planned = 0;        // the last plan with a chunk of it
    int64_t tokens = 0;         // when it was admitted
    bool short_prompt = false;  // when it was admitted
    bool prefilling = false;    // is among those of its queue
    bool parked = false;
    bool keeps_room = false;  // for its tenant's next one, when it ends
  };
  using Running = std::map<Sequence*, RunningInfo, BySeniority>;
  // The waiting sequence that did not fit and that others wait behind, and what there was when it
  // was last tried.
  struct HeadOfLineBlocker {
    const TenantQueue* queue = nullptr;  // null: there is none
    int64_t number = -1;
    int64_t available_blocks = 0;
    int64_t active_places = 0;
    int64_t tried = 0;  // in which plan
  };

  // Of what runs and is not parked.
  struct Holding {
    int64_t places = 0;
    double blocks = 0;  // one that several use is divided among them
  };
  using Holdings = std::unordered_map<const TenantQueue*, Holding>;
  struct Room {
    int64_t places = 0;
    int64_t blocks = 0;
  };
  struct KeptRoom {
    Room room;
    int32_t priority = 0;
    int64_t since = 0;  // which plan
  };

  // scheduler.cc: what a step computes.
  void Extend(StepPlan& plan, bool may_preempt);
  void RefreshRunning();
  void AddDecodes(StepPlan& plan, bool may_preempt);
  // Decodes that have forced tokens, too, get more of these.
  void LengthenDecodes(StepPlan& plan);
  bool GrowByPreempting(Sequence& sequence, StepPlan& plan, bool may_preempt);
  // Its chunk, and what its tenant was charged for it.
  static void TakeOut(const Sequence& sequence, const RunningInfo& info, StepPlan& plan);
  // One that may have a chunk in the plan.
  void PreemptPlanned(Sequence& sequence, StepPlan& plan);
  void AddPrefills(StepPlan& plan);
  // At most as many tokens as the step then has of prompts altogether.
  void AddPrefill(Sequence& sequence, int64_t max_prefill_tokens, StepPlan& plan);
  // Of its chunk, with what the plan has of others.
  int64_t MaxRows(const Sequence& sequence, const StepPlan& plan) const;
  // Of one that is not running, or just begins to.
  bool IsShort(const Sequence& sequence) const;

  // scheduler_admission.cc: which sequences run.
  // `plan`: from which those that yield are taken out; null: none does.
  bool Admit(Sequence& sequence, StepPlan* plan);
  bool StillBlocked(const Sequence& sequence) const;
  bool MakeRoom(const Sequence& sequence, StepPlan* plan);
  // What it lacks beside what is kept, if `active` places are taken and so many blocks available.
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
  // What its tenant would hold with it.
  Holding HoldingWith(const Holdings& held, const Sequence& sequence);
  bool IsLarger(const Holding& a, const Holding& b) const;
  void AdmitSmaller(StepPlan& plan);
  // Of a step; fewer while others may come that would have to wait for its end.
  int64_t MaxPrefillTokens(const StepPlan& plan) const;
  void LeaveStepTo(const Sequence& smaller, StepPlan& plan);
  Sequence* NextSmaller();
  bool AnotherHoldsMore(const Holdings& held, const Sequence& waiting);
  // Empty: those that would yield do not suffice.
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
  // Sequences that hold blocks: each may need a token and a row in a step.
  const int64_t max_running_;
  BlockPool& pool_;
  PrefixCache* const cache_;
  TenantQueues queues_;  // of all sequences
  Running running_;      // seniors first
  int64_t plans_ = 0;
  int64_t preemptions_ = 0;
  std::optional<int64_t> last_left_;  // the last plan that larger tenants left to smaller ones
  HeadOfLineBlocker blocker_;
  std::map<std::string, KeptRoom> kept_rooms_;  // by tenant

  // Of the running ones.
  int64_t places_ = 0;
  int64_t parked_places_ = 0;
  int64_t num_parked_ = 0;
  // Found by RefreshRunning, for what follows it; seniors first.
  std::vector<std::pair<Sequence*, RunningInfo*>> decodes_;
  std::vector<Sequence*> parked_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SCHEDULER_H_
