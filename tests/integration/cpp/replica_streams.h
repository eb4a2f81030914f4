// Streams whose every byte is known, for tests that disturb them.
#ifndef TLM_TESTS_INTEGRATION_CPP_REPLICA_STREAMS_H_
#define TLM_TESTS_INTEGRATION_CPP_REPLICA_STREAMS_H_

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "model/base/mutex.h"
#include "tests/support/server_process.h"

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

// Replicas of the bundled model that keep their ports over restarts.
class Replicas {
 public:
  // `flags`: of each, besides ReplicaFlags.
  explicit Replicas(size_t count, std::vector<std::string> flags = {});

  int port(size_t index) const { return replicas_[index].port; }
  int metrics_port(size_t index) const { return replicas_[index].metrics_port; }
  std::vector<std::string> targets() const;

  void Kill(size_t index) { End(index, SIGKILL, -SIGKILL); }
  // As a rolling restart does it: asks it to end and waits until it has.
  void End(size_t index) { End(index, SIGTERM, 0); }
  void Start(size_t index);

 private:
  struct Replica {
    std::unique_ptr<ServerProcess> server;
    int port = 0;  // any, at first
    int metrics_port = 0;
  };

  void End(size_t index, int signal, int status);

  const std::vector<std::string> flags_;
  std::vector<Replica> replicas_;
};

// A port without a listener.
int FreePort();

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
