// Holds the context of calls, which exists once the model is loaded; ports open earlier.
#ifndef TLM_SERVER_RPC_CALL_GATE_H_
#define TLM_SERVER_RPC_CALL_GATE_H_

#include <atomic>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace tlm {

struct RpcContext;

// Thread-safe, but Open may be called only once.
template <typename Context>
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Returns null while the server starts; then always the same object.
  const Context* Get() const { return open_.load(std::memory_order_acquire); }
  // Call once. Everything that `context` refers to outlives every call.
  void Open(Context context) {
    context_.emplace(std::move(context));
    open_.store(&*context_, std::memory_order_release);
  }

 private:
  std::optional<Context> context_;
  std::atomic<const Context*> open_{nullptr};
};

using RpcGate = Gate<RpcContext>;

// Returns the status of calls while the gate is closed: UNAVAILABLE, reason STARTING, with a retry
// time.
absl::Status StartingStatus();

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_GATE_H_
