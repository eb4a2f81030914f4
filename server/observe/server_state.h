// Holds the life cycle state of the process, for health, probes and metrics.
#ifndef TLM_SERVER_OBSERVE_SERVER_STATE_H_
#define TLM_SERVER_OBSERVE_SERVER_STATE_H_

#include <atomic>
#include <string_view>

namespace tlm {

enum class LifeState {
  kStarting,
  kServing,
  kNotServing,  // loaded, but the engine fails or is stuck
  kDraining,    // withdrawn; running calls continue
  kStopped,
};

inline std::string_view LifeStateName(LifeState state) {
  switch (state) {
    case LifeState::kStarting:
      return "starting";
    case LifeState::kServing:
      return "serving";
    case LifeState::kNotServing:
      return "not_serving";
    case LifeState::kDraining:
      return "draining";
    case LifeState::kStopped:
      break;
  }
  return "stopped";
}

// Thread-safe. A server that drains or has stopped never serves again.
class ServerState {
 public:
  LifeState Get() const { return state_.load(); }
  // Later states win: Set(kServing) while draining changes nothing.
  void Set(LifeState state) {
    LifeState now = state_.load();
    while ((now < LifeState::kDraining || state > now) &&
           !state_.compare_exchange_weak(now, state)) {
    }
  }

 private:
  std::atomic<LifeState> state_{LifeState::kStarting};
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_SERVER_STATE_H_
