// The end of a process that does not come to its end by itself.
#ifndef TLM_SERVER_PROCESS_FORCED_END_H_
#define TLM_SERVER_PROCESS_FORCED_END_H_

#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// Ends the process with kExitForced, without destructors, unless this object dies within `limit`:
// a step that never returns, on a device that hangs, cannot be interrupted, nor can gRPC when it is
// busy with a connection.
class ForcedEnd {
 public:
  // `what` is what has not happened by then: "the engine has not stopped". It outlives the object.
  ForcedEnd(std::string_view what, absl::Duration limit);
  ~ForcedEnd();
  ForcedEnd(const ForcedEnd&) = delete;
  ForcedEnd& operator=(const ForcedEnd&) = delete;

 private:
  void Run();

  const std::string_view what_;
  const absl::Duration limit_;
  Mutex mutex_;
  CondVar changed_;
  bool averted_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_FORCED_END_H_
