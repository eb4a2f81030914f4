// The wish that the server end: signals and the Admin service make it, the main thread fulfils it.
#ifndef TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
#define TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_

#include <optional>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// Thread-safe.
class ShutdownRequest {
 public:
  // What still runs may go on for `drain_limit`; nullopt: as long as the server's own limit says.
  // The first one counts, later ones change nothing; true for the first.
  bool Ask(std::optional<absl::Duration> drain_limit);
  bool asked() const;
  // Waits until somebody asks; the limit of who asked first.
  std::optional<absl::Duration> Wait();

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool asked_ TLM_GUARDED_BY(mutex_) = false;
  std::optional<absl::Duration> drain_limit_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_SHUTDOWN_REQUEST_H_
