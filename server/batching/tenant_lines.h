// The order in which sequences are prefilled: priority, then the tenant that has had the least,
// then its earliest deadline, then arrival.
#ifndef TLM_SERVER_BATCHING_TENANT_LINES_H_
#define TLM_SERVER_BATCHING_TENANT_LINES_H_

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
struct TenantLine {
  TenantCounters::Counter* counter = nullptr;
  std::set<Sequence*, ByUrgency> waiting;
  std::set<Sequence*, ByUrgency> prefilling;  // run, and could compute a token now
  int64_t members = 0;                        // those that decode or are parked included
};

// All lines. Counters are a priority's own: between priorities there is no fairness, the larger one
// goes first; and they begin anew once no sequence of the priority is left. Not thread-safe.
class TenantLines {
 public:
  // One member more: of the line of its tenant and priority, which stays where it is while it has
  // any.
  void Join(const Sequence& sequence);
  // Before it leaves, a member waits no longer and is not among the prefilling.
  void Leave(const Sequence& member);
  TenantLine& LineOf(const Sequence& member);

  void Wait(Sequence& member);
  // Whether it waited; of any sequence, member or not.
  bool StopWaiting(Sequence& sequence);
  int64_t waiting() const { return waiting_; }
  // More than one line has members.
  bool contended() const { return lines_ > 1; }
  // What each line of the highest priority that any wait with would have admitted next, by tenant.
  std::vector<Sequence*> FirstWaiting() const;

 private:
  friend class PrefillTurns;
  struct Level {
    TenantCounters counters;
    std::map<std::string, TenantLine> lines;
  };

  TenantLine* Find(const Sequence& sequence);

  std::map<int32_t, Level, std::greater<>> levels_;  // by priority
  int64_t waiting_ = 0;
  int64_t lines_ = 0;
};

// One step's turns. A waiting sequence whose reader has no room is left out: it would take blocks
// just to be parked with them.
class PrefillTurns {
 public:
  // `at_door`, or null: the line whose first waiting one was last found not to fit. As long as it
  // has one that waits, no other line of its priority is admitted from, whatever the counters say.
  // Nobody joins or leaves `lines` while this lives; waiting ones may be moved to the prefilling.
  PrefillTurns(TenantLines& lines, const TenantLine* at_door);

  // Whose turn it is, null at the end. Charge its line's counter before the next call.
  Sequence* Next();
  // From now on prefilling ones alone.
  void CloseDoor();

 private:
  using Place = std::set<Sequence*, ByUrgency>::iterator;
  struct Contender {
    int32_t priority;
    TenantLine* line;
    bool door_open;
    Place prefilling;
    Place waiting;
    Sequence* head = nullptr;  // the more urgent of the two
  };
  struct GoesAfter {
    bool operator()(const Contender& a, const Contender& b) const;
  };

  using Contenders = std::vector<Contender>;

  static Contenders ContendersOf(int32_t priority, TenantLines::Level& level);
  static bool FindHead(Contender& contender);
  static void AdmitOnlyFrom(const TenantLine* line, Contenders& contenders);

  Contenders heap_;                 // its front goes next
  std::optional<Contender> taken_;  // whose turn it is: not in the heap
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TENANT_LINES_H_
