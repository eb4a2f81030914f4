// The order in which sequences are prefilled: priority, then the tenant that has had the least,
// then its earliest deadline, then arrival.
#ifndef TLM_SERVER_BATCHING_TENANT_QUEUES_H_
#define TLM_SERVER_BATCHING_TENANT_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/batching/sequence.h"

namespace tlm {

// One counter a tenant; the tenant with the smallest goes next and is charged for it:
//
//   counter += kPrefillWeight * prefill tokens + kDecodeWeight * decode tokens
//
// So the counters of tenants that always want more stay within one turn of each other. One that
// wants nothing collects no credit: when it wants something again, its counter is lifted to the
// smallest of those that have wanted something till then.
//
// Not thread-safe: the engine thread owns it.
class TenantCounters {
 public:
  static constexpr int64_t kPrefillWeight = 1;
  static constexpr int64_t kDecodeWeight = 2;
  // Tenants without work whose counters are remembered; of more, those that left the latest.
  static constexpr size_t kMaxIdle = 1024;

  // A tenant's.
  class Counter {
   public:
    int64_t tokens() const { return tokens_; }
    void Charge(int64_t prefill_tokens, int64_t decode_tokens) {
      tokens_ += kPrefillWeight * prefill_tokens + kDecodeWeight * decode_tokens;
    }

   private:
    friend class TenantCounters;
    int64_t tokens_ = 0;
    int64_t wanted_ = 0;  // the last step in which the tenant wanted tokens
    bool held_ = false;
    std::list<std::string>::iterator idle_;  // while it is not held
  };

  // The counter stays where it is until Release. A tenant's is held once.
  Counter& Hold(const std::string& tenant);
  void Release(const std::string& tenant);

  // A step begins, in which these, all of them held, want tokens that not all will get.
  void BeginStep(std::span<Counter* const> wanting);

  size_t size() const { return counters_.size(); }

 private:
  // What the counters of those that did not want tokens in the step before are lifted to.
  int64_t Floor(std::span<Counter* const> wanting) const;

  std::unordered_map<std::string, Counter> counters_;
  std::list<std::string> idle_;  // those not held, the longest so first
  int64_t step_ = 1;             // the last one in which any wanted tokens
  int64_t floor_ = 0;
};

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
