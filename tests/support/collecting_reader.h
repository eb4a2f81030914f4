// The reader of a token stream for tests: it takes and keeps every result.
#ifndef TLM_TESTS_SUPPORT_COLLECTING_READER_H_
#define TLM_TESTS_SUPPORT_COLLECTING_READER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "model/base/mutex.h"
#include "server/batching/token_stream.h"

namespace tlm {

// Thread-safe. Takes results at each OnStreamReady unless paused; TakeNow takes at any time.
class CollectingReader : public StreamListener {
 public:
  struct Collected {
    std::vector<StreamStart> starts;
    std::vector<SampledToken> tokens;
    std::vector<LogitsRow> rows;
    std::vector<ScoredEntry> scored;
    std::vector<StreamEnd> ends;

    std::vector<int32_t> token_ids() const {
      std::vector<int32_t> ids;
      for (const SampledToken& token : tokens) ids.push_back(token.id);
      return ids;
    }
  };

  static std::shared_ptr<CollectingReader> Create(int64_t capacity = TokenStream::kUnbounded,
                                                  bool paused = false) {
    auto reader = std::make_shared<CollectingReader>();
    reader->paused_ = paused;
    reader->stream_ = std::make_shared<TokenStream>(reader, capacity);
    return reader;
  }

  const std::shared_ptr<TokenStream>& stream() const { return stream_; }

  void OnStreamReady() override {
    MutexLock lock(&mutex_);
    ++calls_;
    if (!paused_) TakeLocked();
    changed_.NotifyAll();
  }

  void TakeNow() {
    MutexLock lock(&mutex_);
    TakeLocked();
    changed_.NotifyAll();
  }

  // Takes results now and at each OnStreamReady from now on.
  void Resume() {
    MutexLock lock(&mutex_);
    paused_ = false;
    TakeLocked();
    changed_.NotifyAll();
  }

  Collected collected() const {
    MutexLock lock(&mutex_);
    return collected_;
  }

  // Waits until `condition(collected)` holds; fails the test when nothing arrives for kPatience.
  // The emulated GPU is hundreds of times slower under ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
  static constexpr std::chrono::minutes kPatience{20};
#else
  static constexpr std::chrono::minutes kPatience{1};
#endif
  template <typename Condition>
  Collected WaitUntil(Condition condition) {
    MutexLock lock(&mutex_);
    while (!condition(collected_)) {
      if (!changed_.WaitFor(&mutex_, kPatience)) {
        ADD_FAILURE() << "nothing arrived for " << kPatience.count() << " min";
        break;
      }
    }
    return collected_;
  }
  Collected WaitForEnd() {
    return WaitUntil([](const Collected& collected) { return !collected.ends.empty(); });
  }
  // Waits until OnStreamReady has been called `calls` times.
  void WaitForCalls(int64_t calls) {
    WaitUntil([this, calls](const Collected&) { return calls_ >= calls; });
  }

 private:
  void TakeLocked() {
    TokenStream::Pending pending = stream_->Take();
    if (pending.start.has_value()) collected_.starts.push_back(*pending.start);
    std::move(pending.tokens.begin(), pending.tokens.end(), std::back_inserter(collected_.tokens));
    std::move(pending.rows.begin(), pending.rows.end(), std::back_inserter(collected_.rows));
    std::move(pending.scored.begin(), pending.scored.end(), std::back_inserter(collected_.scored));
    if (pending.end.has_value()) collected_.ends.push_back(*pending.end);
  }

  std::shared_ptr<TokenStream> stream_;  // shared with the engine
  mutable Mutex mutex_;
  CondVar changed_;
  bool paused_ = false;
  int64_t calls_ = 0;
  Collected collected_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_COLLECTING_READER_H_
