// Orders sequences for prefill: by priority, then by the tenant that has had the fewest tokens,
// then by its earliest deadline, then by arrival.
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

// One counter per tenant; the tenant with the smallest counter goes next and is charged for it:
//
//   counter += kPrefillWeight * prefill tokens + kDecodeWeight * decode tokens
//
// The counters of tenants that always want tokens stay within one turn of each other. A tenant that
// wants nothing collects no credit: when it wants tokens again, its counter is raised to the
// smallest counter among the tenants that wanted tokens until then.
//
// Not thread-safe: the engine thread owns it.
class TenantCounters {
 public:
  static constexpr int64_t kPrefillWeight = 1;
  static constexpr int64_t kDecodeWeight = 2;
  // Tenants without work whose counters are kept; beyond that, the one that left first is
  // forgotten.
  static constexpr size_t kMaxIdle = 1024;

  // The counter of one tenant.
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
    std::list<std::string>::iterator idle_;  // position in idle_ while it is not held
  };

  // Holds the tenant's counter, whose address is stable until Release. Not while it is held
  // already.
  Counter& Hold(const std::string& tenant);
  void Release(const std::string& tenant);

  // Begins a step in which `wanting`, all of them held, want tokens; not all will get some.
  void BeginStep(std::span<Counter* const> wanting);

  size_t size() const { return counters_.size(); }

 private:
  // Returns the value to which the counters of tenants that wanted no tokens in the previous step
  // are raised.
  int64_t Floor(std::span<Counter* const> wanting) const;

  std::unordered_map<std::string, Counter> counters_;
  std::list<std::string> idle_;  // tenants not held, the longest idle first
  int64_t step_ = 1;             // the last step in which any tenant wanted tokens
  int64_t floor_ = 0;
};

// Orders by deadline, then by arrival.
struct ByUrgency {
  bool operator()(const Sequence* a, const Sequence* b) const;
};

// The sequences of one tenant at one priority.
struct TenantQueue {
  TenantCounters::Counter* counter = nullptr;
  std::set<Sequence*, ByUrgency> waiting;
  std::set<Sequence*, ByUrgency> prefilling;  // running ones that could compute a token now
  int64_t members = 0;                        // decoding and parked ones included
};

// The queues of all tenants. Each priority has its own counters: between priorities there is no
// fairness, the larger one goes first. The counters of a priority start again at 0 once it has no
// sequence. Not thread-safe.
class TenantQueues {
 public:
  // Adds a member to the queue of its tenant and priority. The queue's address is stable while it
  // has members.
  void Join(const Sequence& sequence);
  // Call only when the member neither waits nor is in `prefilling`.
  void Leave(const Sequence& member);
  TenantQueue& QueueOf(const Sequence& member);

  void Wait(Sequence& member);
  // Returns whether it waited. Accepts any sequence, member or not.
  bool StopWaiting(Sequence& sequence);
  int64_t waiting() const { return waiting_; }
  // Returns true when more than one queue has members.
  bool contended() const { return queues_ > 1; }
  // At the highest priority at which any sequence waits: the next sequence to admit from each
  // queue, ordered by tenant.
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

// The order in which prompts get the tokens of one step. A waiting sequence whose reader has no
// room is skipped: it would take blocks only to be parked with them.
class PrefillOrder {
 public:
  // `blocked`: the queue whose first waiting sequence last did not fit, or null. While it has a
  // waiter, no other queue of its priority is served, whatever the counters say. No sequence joins
  // or leaves `queues` while this object lives; waiting ones may be moved to the prefilling ones.
  PrefillOrder(TenantQueues& queues, const TenantQueue* blocked);

  // Returns the next sequence, null at the end. Charge its queue's counter before the next call.
  Sequence* Next();
  // From now on returns only running sequences.
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

  Contenders heap_;                 // a heap: its front goes next
  std::optional<Contender> taken_;  // the contender whose turn it is: not in the heap
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TENANT_QUEUES_H_
