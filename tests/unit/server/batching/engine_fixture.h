// An engine in its own thread, on a scripted model that a test can hold in a step.
#ifndef TLM_TESTS_UNIT_SERVER_BATCHING_ENGINE_FIXTURE_H_
#define TLM_TESTS_UNIT_SERVER_BATCHING_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/batching/engine.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/scripted_model.h"
#include "tests/support/status_matchers.h"

namespace tlm {

inline constexpr int64_t kContext = 512;
inline constexpr BatchLimits kLimits{
    .max_tokens = 512, .max_sequences = 64, .max_logits_rows = 64, .max_context = kContext};

// Holds the engine thread inside Forward while closed.
class Gate {
 public:
  void PassThrough() {
    MutexLock lock(&mutex_);
    ++arrived_;
    changed_.NotifyAll();
    while (closed_) changed_.Wait(&mutex_);
  }
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    arrived_ = 0;
  }
  // Waits until the engine stands at the closed gate.
  void WaitForArrival() {
    MutexLock lock(&mutex_);
    while (arrived_ == 0) changed_.Wait(&mutex_);
  }
  void Open() {
    MutexLock lock(&mutex_);
    closed_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool closed_ = false;
  int arrived_ = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    model_.set_on_forward([this](const Batch&) { gate_.PassThrough(); });
  }
  ~EngineTest() override { gate_.Open(); }

  void Start(const EngineOptions& options = {}, Clock& clock = *Clock::Monotonic()) {
    auto engine = Engine::Start(model_, options, clock);
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }

  std::shared_ptr<CollectingReader> Submit(Request request,
                                           int64_t capacity = TokenStream::kUnbounded,
                                           bool paused = false) {
    auto reader = CollectingReader::Create(capacity, paused);
    request.stream = reader->stream();
    EXPECT_THAT(engine_->Submit(std::move(request)), IsOk());
    return reader;
  }

  Gate gate_;
  ScriptedModel model_{kLimits, 64};
  std::unique_ptr<Engine> engine_;
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_ENGINE_FIXTURE_H_
