// An engine without a model: the test plays its part.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "model/base/mutex.h"
#include "server/batching/engine.h"
#include "server/batching/token_stream.h"

namespace tlm {

// Thread-safe. Keeps what is submitted; the test pushes into the streams and calls Deliver.
class FakeEngine : public Engine {
 public:
  absl::Status Submit(Request&& request) override {
    MutexLock lock(&mutex_);
    if (!submit_status_.ok()) {
      ++refused_;
      changed_.NotifyAll();
      return submit_status_;
    }
    submitted_.push_back(std::make_unique<Request>(std::move(request)));
    submitted_.back()->stream->SetWaker(waker_);
    for (const auto& stream : submitted_.back()->branch_streams) stream->SetWaker(waker_);
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::Status CheckOpen() const override {
    MutexLock lock(&mutex_);
    return open_status_;
  }
  void FlushPrefixCache(std::function<void(int64_t)> done) override {
    MutexLock lock(&mutex_);
    flushes_.push_back(std::move(done));
    changed_.NotifyAll();
  }
  void Drain() override {}
  bool WaitUntilIdle(absl::Duration timeout) override { return true; }
  void Stop() override {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  EngineStats Stats() const override {
    MutexLock lock(&mutex_);
    return stats_;
  }

  // What Submit answers from now on.
  void set_submit_status(absl::Status status) {
    MutexLock lock(&mutex_);
    submit_status_ = std::move(status);
  }
  // What CheckOpen answers from now on.
  void set_open_status(absl::Status status) {
    MutexLock lock(&mutex_);
    open_status_ = std::move(status);
  }
  // What Stats answers from now on.
  void set_stats(const EngineStats& stats) {
    MutexLock lock(&mutex_);
    stats_ = stats;
  }
  // Waits for a FlushPrefixCache; the function to answer it with.
  std::function<void(int64_t)> WaitForFlush() {
    MutexLock lock(&mutex_);
    while (flushes_.empty()) changed_.Wait(&mutex_);
    std::function<void(int64_t)> done = std::move(flushes_.front());
    flushes_.pop_front();
    return done;
  }
  int64_t submitted() const {
    MutexLock lock(&mutex_);
    return static_cast<int64_t>(submitted_.size());
  }
  // Waits for the request submitted at `index`, counted from 0.
  Request& WaitForRequest(size_t index = 0) {
    MutexLock lock(&mutex_);
    while (submitted_.size() <= index) changed_.Wait(&mutex_);
    return *submitted_[index];
  }
  // The same, or null once the engine is stopped.
  Request* WaitForRequestOrStop(size_t index) {
    MutexLock lock(&mutex_);
    while (submitted_.size() <= index && !stopped_) changed_.Wait(&mutex_);
    return submitted_.size() <= index ? nullptr : submitted_[index].get();
  }
  // Waits until a request has been refused.
  void WaitForRefusal() {
    MutexLock lock(&mutex_);
    while (refused_ == 0) changed_.Wait(&mutex_);
  }
  // Waits until the handler lets go of the stream.
  void WaitUntilDetached(const TokenStream& stream) {
    MutexLock lock(&mutex_);
    while (!stream.detached()) changed_.Wait(&mutex_);
  }

  // Waits until the token stream takes another result, as a parked sequence does.
  void WaitForRoom(const TokenStream& stream) {
    MutexLock lock(&mutex_);
    while (stream.Room() == 0) changed_.Wait(&mutex_);
  }

  // The delivery thread's part.
  static void Deliver(TokenStream& stream) {
    if (const auto listener = stream.listener()) listener->OnStreamReady();
  }

 private:
  struct Waker : StreamWaker {
    explicit Waker(FakeEngine* engine) : engine(engine) {}
    void Wake() override {
      MutexLock lock(&engine->mutex_);
      engine->changed_.NotifyAll();
    }
    FakeEngine* const engine;
  };

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status submit_status_ TLM_GUARDED_BY(mutex_);
  absl::Status open_status_ TLM_GUARDED_BY(mutex_);
  EngineStats stats_ TLM_GUARDED_BY(mutex_);
  std::deque<std::function<void(int64_t)>> flushes_ TLM_GUARDED_BY(mutex_);
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;
  int64_t refused_ TLM_GUARDED_BY(mutex_) = 0;
  std::deque<std::unique_ptr<Request>> submitted_ TLM_GUARDED_BY(mutex_);
  const std::shared_ptr<StreamWaker> waker_ = std::make_shared<Waker>(this);
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_
