#include "server/process/heartbeat.h"

#include <utility>

#include "model/base/thread_name.h"

namespace tlm {

Heartbeat::Heartbeat(absl::Duration interval, std::function<void()> beat)
    : interval_(interval), beat_(std::move(beat)), thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_asked_.NotifyAll();
  }
  thread_.join();
}

void Heartbeat::Run() {
  NameThisThread("heartbeat");
  for (;;) {
    beat_();
    MutexLock lock(&mutex_);
    if (!stopping_) stop_asked_.WaitFor(&mutex_, absl::ToChronoNanoseconds(interval_));
    if (stopping_) return;
  }
}

}  // namespace tlm
