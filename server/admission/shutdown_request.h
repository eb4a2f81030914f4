// The wish that the server end: signals and the Admin service make it, the main thread fulfils it.
#ifndef TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
#define TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_

#include <optional>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

struct ShutdownTerms {
  // Balancers get the time to notice before new calls are refused.
  bool withdrawal_grace = true;
  // What then still runs may go on for so long; nullopt: as long as the server's own limit says.
  std::optional<absl::Duration> drain_limit;
};

// Thread-safe.
class ShutdownRequest {
 public:
  // The first one counts, later ones change nothing; true for the first.
  bool Ask(const ShutdownTerms& terms);
  bool asked() const;
  // Waits until somebody asks; the terms of who asked first.
  ShutdownTerms Wait();

  // Whoever ends the server is not to wait for anything more.
  void Hurry();
  // Waits for Hurry(), at most `timeout`; true when it was called.
  bool WaitForHurry(absl::Duration timeout);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool asked_ TLM_GUARDED_BY(mutex_) = false;
  bool hurried_ TLM_GUARDED_BY(mutex_) = false;
  ShutdownTerms terms_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
