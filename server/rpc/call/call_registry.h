// Registers the calls that Admin.Abort can end, by request id and tenant.
#ifndef TLM_SERVER_RPC_CALL_CALL_REGISTRY_H_
#define TLM_SERVER_RPC_CALL_CALL_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/base/mutex.h"

namespace tlm {

// A call that works or waits for the engine. Thread-safe.
class AbortableCall {
 public:
  virtual ~AbortableCall() = default;
  // Cancels the engine's work and ends the call with `status`, unless it has ended or is about to
  // end; returns whether this call ended it. Does not wait for the client.
  virtual bool Abort(const absl::Status& status) = 0;
};

// Thread-safe; ends calls without holding a lock. Outlives every registration.
class CallRegistry {
 public:
  // Registers a call for this object's lifetime. Move-only.
  class Registration {
   public:
    Registration() = default;
    Registration(Registration&& other) noexcept;
    Registration& operator=(Registration&& other) noexcept;
    ~Registration();

   private:
    friend class CallRegistry;
    Registration(CallRegistry* registry, std::string request_id, uint64_t number)
        : registry_(registry), request_id_(std::move(request_id)), number_(number) {}

    CallRegistry* registry_ = nullptr;
    std::string request_id_;
    uint64_t number_ = 0;
  };

  // Registers a call. Several calls may share an id: admission makes ids unique only within a
  // tenant.
  [[nodiscard]] Registration Register(const std::string& tenant, const std::string& request_id,
                                      std::weak_ptr<AbortableCall> call);

  // Ends the calls with this id, or only those of `tenant`; returns how many it ended.
  int64_t Abort(const std::string& request_id, const std::optional<std::string>& tenant,
                const absl::Status& status);
  // Ends all registered calls, or only those of `tenant`.
  struct Ended {
    std::vector<std::string> request_ids;  // in order, without duplicates
    int64_t calls = 0;
  };
  Ended AbortAll(const std::optional<std::string>& tenant, const absl::Status& status);

 private:
  struct Entry {
    std::string tenant;
    std::weak_ptr<AbortableCall> call;  // weak: gRPC and the engine own the call
    uint64_t number = 0;                // the registration's number
  };

  void Unregister(const std::string& request_id, uint64_t number);

  Mutex mutex_;
  std::multimap<std::string, Entry> calls_ TLM_GUARDED_BY(mutex_);
  uint64_t registered_ TLM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_REGISTRY_H_
