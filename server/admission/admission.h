// Admission control: checks the limits of the server and of tenants, the uniqueness of request ids,
// and the state of the server (starting, serving, draining).
#ifndef TLM_SERVER_ADMISSION_ADMISSION_H_
#define TLM_SERVER_ADMISSION_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/admission/tenant_quotas.h"
#include "server/auth/principal.h"

namespace tlm {

struct AdmissionLimits {
  int64_t max_calls = 4096;               // admitted calls that have not ended
  int64_t max_tokens = int64_t{1} << 24;  // prompt tokens of those calls together
};

// A call to admit.
struct AdmissionRequest {
  const Principal& caller;
  std::string request_id;
  int64_t tokens = 0;  // prompt tokens
  absl::Time deadline = absl::InfiniteFuture();
  int64_t priority = 0;
};

// Thread-safe. Outlives every ticket it gave out.
class Admission {
 public:
  // Counts one call as active; releases its id and its tokens when destroyed. Move-only.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

    // Lets another call use this call's id; this call, about to end, is still counted. Idempotent.
    void FreeRequestId();
    // ChargeOutput charges the tenant for the generated tokens; call it once, at the end. Refund
    // gives back the charge of a call for which nothing was computed. Neither has an effect on an
    // empty ticket.
    void ChargeOutput(int64_t tokens);
    void Refund();

   private:
    friend class Admission;
    Ticket(Admission* admission, const AdmissionRequest& request);

    Admission* admission_ = nullptr;
    std::string tenant_;
    TenantLimits limits_;  // the limits at admission
    std::string request_id_;
    int64_t tokens_ = 0;
  };

  // Refuses all calls until Open(). `check_queue` returns whether the engine's queue would accept
  // the smallest request now. It is thread-safe; null means always OK. `clock` outlives this
  // object.
  Admission(const AdmissionLimits& limits, Clock& clock,
            std::function<absl::Status()> check_queue = nullptr);

  // Call once per call of `caller`, before its request is parsed, so that a refusal is cheap.
  // Refuses the call as Admit would refuse the smallest call; by `check_queue`; or by the tenant's
  // limit of requests per minute (RESOURCE_EXHAUSTED, reason TENANT_QUOTA, with a retry time).
  // Otherwise counts it as one of the tenant's requests.
  absl::Status Enter(const Principal& caller);
  // The same for a call that is answered at once and never admitted: checks only the tenant's
  // limit.
  absl::Status CountRequest(const Principal& caller);
  // Admits a call that has entered; an empty id never conflicts. Errors: UNAVAILABLE, reason
  // STARTING or DRAINING, with a retry time; ALREADY_EXISTS while another call of this tenant with
  // this id is active; DEADLINE_EXCEEDED, reason EXPIRED_IN_QUEUE, when `deadline` has passed;
  // RESOURCE_EXHAUSTED, reason QUEUE_FULL, QUEUED_TOKENS or, over a limit of the tenant,
  // TENANT_QUOTA, with a retry time; PERMISSION_DENIED, reason TENANT_PRIORITY, for a priority
  // above the tenant's.
  absl::StatusOr<Ticket> Admit(const AdmissionRequest& request);

  // Changes the state from starting to serving.
  void Open();
  // Refuses all new calls from now on; admitted calls continue. Idempotent.
  void Drain();
  // Waits until no ticket is left, at most `timeout`, or until Interrupt(); true when none is left.
  bool WaitUntilEmpty(absl::Duration timeout);
  // Ends every WaitUntilEmpty, present and future, at once.
  void Interrupt();

  int64_t active_calls() const;

 private:
  enum class State { kStarting, kServing, kDraining };

  absl::Status CheckOpen() const TLM_REQUIRES(mutex_);
  void FreeId(const Ticket& ticket);
  void ChargeOutput(const Ticket& ticket, int64_t tokens);
  void Refund(const Ticket& ticket);
  void Release(const Ticket& ticket);

  const AdmissionLimits limits_;
  Clock& clock_;
  const std::function<absl::Status()> check_queue_;
  mutable Mutex mutex_;
  CondVar changed_;
  State state_ TLM_GUARDED_BY(mutex_) = State::kStarting;
  bool interrupted_ TLM_GUARDED_BY(mutex_) = false;
  int64_t calls_ TLM_GUARDED_BY(mutex_) = 0;   // tickets that exist
  int64_t tokens_ TLM_GUARDED_BY(mutex_) = 0;  // prompt tokens of those tickets
  // Keyed by tenant too, so that a refusal does not reveal which ids other tenants use.
  absl::flat_hash_set<std::pair<std::string, std::string>> active_ids_ TLM_GUARDED_BY(mutex_);
  TenantQuotas quotas_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_ADMISSION_H_
