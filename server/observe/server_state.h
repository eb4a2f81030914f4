// Where the process is in its life, for everything that tells others.
#ifndef TLM_SERVER_OBSERVE_SERVER_STATE_H_
#define TLM_SERVER_OBSERVE_SERVER_STATE_H_

#include <atomic>
#include <string_view>

namespace tlm {

enum class LifeState {
  kStarting,
  kServing,
  kNotServing,  // would serve, but the engine fails or stands still
  kDraining,    // withdrawn; what runs goes on
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
  // Later states stay: Set(kServing) while draining changes nothing.
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
