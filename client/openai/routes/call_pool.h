// Threads that run calls.
#ifndef TLM_CLIENT_OPENAI_ROUTES_CALL_POOL_H_
#define TLM_CLIENT_OPENAI_ROUTES_CALL_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tlm::openai {

// A running call blocks a thread: client/cpp reads streams that way. Threads start when they are
// first needed. Thread-safe.
class CallPool {
 public:
  using Task = std::function<void()>;

  CallPool(size_t max_threads, size_t max_queued)
      : max_threads_(max_threads), max_queued_(max_queued) {}
  // Runs the queued tasks and waits for their end.
  ~CallPool();

  // Runs the tasks, at once or when threads are free. False, with none of them queued, if that
  // would queue more than max_queued. Tasks must not throw.
  bool Submit(std::vector<Task> tasks);

  // Tasks that run and that wait.
  size_t running() const;
  size_t queued() const;

 private:
  void Run();
  void StartThreadsLocked();

  const size_t max_threads_;
  const size_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Task> tasks_;
  std::vector<std::thread> threads_;
  size_t running_ = 0;
  bool stopping_ = false;
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_CALL_POOL_H_
