// The order in which sequences are prefilled: priority, then the tenant that has had the least,
// then its earliest deadline, then arrival.
#ifndef TLM_SERVER_BATCHING_TENANT_QUEUES_H_
#define TLM_SERVER_BATCHING_TENANT_QUEUES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/batching/sequence.h"
#include "server/batching/tenant_counters.h"

namespace tlm {

// Deadline, then arrival.
struct ByUrgency {
  bool operator()(const Sequence* a, const Sequence* b) const;
};

// What one tenant wants with one priority.
struct TenantQueue {
  TenantCounters::Counter* counter = nullptr;
  std::set<Sequence*, ByUrgency> waiting;
  std::set<Sequence*, ByUrgency> prefilling;  // run, and could compute a token now
  int64_t members = 0;                        // those that decode or are parked included
};

// The queues of all tenants. Counters are a priority's own: between priorities there is no
// fairness, the larger one goes first; and they begin anew once no sequence of the priority is
// left. Not thread-safe.
class TenantQueues {
 public:
  // One member more: of the queue of its tenant and priority, which stays where it is while it has
  // any.
  void Join(const Sequence& sequence);
  // Before it leaves, a member waits no longer and is not among the prefilling.
  void Leave(const Sequence& member);
  TenantQueue& QueueOf(const Sequence& member);

  void Wait(Sequence& member);
  // Whether it waited; of any sequence, member or not.
  bool StopWaiting(Sequence& sequence);
  int64_t waiting() const { return waiting_; }
  // More than one queue has members.
  bool contended() const { return queues_ > 1; }
  // What each queue of the highest priority that any wait with would have admitted next, by tenant.
  std::vector<Sequence*> FirstWaiting() const;

 private:
  friend class PrefillOrder;
  struct Level {
    TenantCounters counters;
    std::map<std::string, TenantQueue> queues;
  };

  TenantQueue* Find(const Sequence& sequence);

  std::map<int32_t, Level, std::greater<>> levels_;  // by priority
  int64_t waiting_ = 0;
  int64_t queues_ = 0;
};

// In which order prompts get the tokens of one step. A waiting sequence whose reader has no room is
// left out: it would take blocks just to be parked with them.
class PrefillOrder {
 public:
  // `blocked`, or null: the queue whose first waiting one was last found not to fit. As long as it
  // has one that waits, no other queue of its priority is admitted from, whatever the counters say.
  // No sequence joins or leaves `queues` while this lives; waiting ones may be moved to the
  // prefilling.
  PrefillOrder(TenantQueues& queues, const TenantQueue* blocked);

  // The next one, null at the end. Charge its queue's counter before the next call.
  Sequence* Next();
  // From now on only those that run already.
  void StopAdmitting();

 private:
  using Place = std::set<Sequence*, ByUrgency>::iterator;
  struct Contender {
    int32_t priority;
    TenantQueue* queue;
    bool may_admit;
    Place prefilling;
    Place waiting;
    Sequence* head = nullptr;  // the more urgent of the two
  };
  struct GoesAfter {
    bool operator()(const Contender& a, const Contender& b) const;
  };

  using Contenders = std::vector<Contender>;

  static Contenders ContendersOf(int32_t priority, TenantQueues::Level& level);
  static bool FindHead(Contender& contender);
  static void AdmitOnlyFrom(const TenantQueue* queue, Contenders& contenders);

  Contenders heap_;                 // its front goes next
  std::optional<Contender> taken_;  // whose turn it is: not in the heap
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TENANT_QUEUES_H_
