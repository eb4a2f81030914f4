// Passes the request to shut the server down from signals and the Admin service to the main thread.
#ifndef TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
#define TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_

#include <optional>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

struct ShutdownTerms {
  // Calls are accepted for a while, until balancers have noticed the withdrawal.
  bool withdrawal_grace = true;
  // The time that running calls then get; nullopt: --drain_timeout.
  std::optional<absl::Duration> drain_limit;
};

// Thread-safe.
class ShutdownRequest {
 public:
  // Returns true for the first request; later requests have no effect.
  bool Ask(const ShutdownTerms& terms);
  bool asked() const;
  // Waits for the first request and returns its terms.
  ShutdownTerms Wait();

  // Ends the drain: the shutdown does not wait for anything any more.
  void SkipDrain();
  // Waits for SkipDrain(), at most `timeout`; returns whether it was called.
  bool WaitForSkip(absl::Duration timeout);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool asked_ TLM_GUARDED_BY(mutex_) = false;
  bool skipped_ TLM_GUARDED_BY(mutex_) = false;
  ShutdownTerms terms_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
