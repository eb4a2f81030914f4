// An engine without a model: the test plays its part.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_

#include <deque>
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
  void Drain() override {}
  bool WaitUntilIdle(absl::Duration timeout) override { return true; }
  void Stop() override {}
  EngineStats Stats() const override { return {}; }

  // What Submit answers from now on.
  void set_submit_status(absl::Status status) {
    MutexLock lock(&mutex_);
    submit_status_ = std::move(status);
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
  int64_t refused_ TLM_GUARDED_BY(mutex_) = 0;
  std::deque<std::unique_ptr<Request>> submitted_ TLM_GUARDED_BY(mutex_);
  const std::shared_ptr<StreamWaker> waker_ = std::make_shared<Waker>(this);
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_FAKE_ENGINE_H_
