// Calls a function periodically.
#ifndef TLM_SERVER_PROCESS_HEARTBEAT_H_
#define TLM_SERVER_PROCESS_HEARTBEAT_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

class Heartbeat {
 public:
  // Calls `beat` now and every `interval` until this object is destroyed, on its own thread.
  Heartbeat(absl::Duration interval, std::function<void()> beat);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void Run();

  const absl::Duration interval_;
  const std::function<void()> beat_;
  Mutex mutex_;
  CondVar stop_asked_;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_HEARTBEAT_H_
