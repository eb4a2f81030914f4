// Streams whose every byte is known, for tests that disturb them.
#ifndef TLM_TESTS_INTEGRATION_CPP_REPLICA_STREAMS_H_
#define TLM_TESTS_INTEGRATION_CPP_REPLICA_STREAMS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "model/base/mutex.h"

namespace tlm {

// Counts what all streams receive, so that a killer can wait for progress instead of time.
class Progress {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++events_;
    changed_.NotifyAll();
  }
  void End() {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  // Waits for `events` more; false when the end comes before.
  bool WaitFor(int64_t events) {
    MutexLock lock(&mutex_);
    const int64_t goal = events_ + events;
    while (events_ < goal && !ended_) changed_.Wait(&mutex_);
    return !ended_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t events_ TLM_GUARDED_BY(mutex_) = 0;
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
};

// Flags of replicas that answer them, with the forms of calls and of reasoning. The bundled model's
// template has the first only.
std::vector<std::string> ReplicaFlags();

// The i-th of many different requests, all sampled at temperature 1.
v1::GenerateRequest RequestOf(int i);

struct Stream {
  absl::Status status;
  client::GenerateCollector collector;
  int starts = 0;
  int resumes = 0;
};

// `on_event` is told how many events have come.
Stream ReadStream(client::Client* client, const v1::GenerateRequest& request,
                  const client::CallOptions& options, const std::function<void(int)>& on_event);

// All of it, but for what depends on when and where it ran.
std::string Everything(const Stream& stream);

}  // namespace tlm

#endif  // TLM_TESTS_INTEGRATION_CPP_REPLICA_STREAMS_H_
