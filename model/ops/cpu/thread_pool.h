// The CPU backend's threads: fork-join loops over numbered tasks.
#ifndef TLM_MODEL_OPS_CPU_THREAD_POOL_H_
#define TLM_MODEL_OPS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tlm {

// `threads` workers, the calling thread being one of them. Between loops the others spin briefly
// (a decode step is some hundred loops in quick succession) and then sleep, so that an idle server
// uses no processor. One loop at a time: not thread-safe.
class ThreadPool {
 public:
  // 1 <= threads <= 4096.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for every i in [0, tasks), in any order and on any of the threads, and
  // returns when all have returned. `body` must not throw and must not call the pool.
  void ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t)> body);

 private:
  // One word says which loop runs, whether it may still be joined, and how many workers are in it.
  // A worker joins by counting itself in while the loop is open; the caller closes the loop when no
  // task is left and waits for those inside. A worker that the system did not run in time has
  // missed the loop, and nobody waits for it.
  //
  //   31 .. 13 number of the loop | 12 open | 11 .. 0 workers inside
  static constexpr uint32_t kInsideMask = (1u << 12) - 1;
  static constexpr uint32_t kOpen = 1u << 12;
  static constexpr uint32_t kNextLoop = 1u << 13;

  void WorkerMain();
  // Waits until `state_` is other than `seen`, spinning first.
  void AwaitChange(uint32_t seen) const;
  void RunTasks();

  std::atomic<uint32_t> state_{0};
  std::atomic<bool> stopping_{false};
  // The running loop. Written while nobody is inside, read by those who are.
  const absl::FunctionRef<void(int64_t)>* body_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_task_{0};
  std::vector<std::thread> workers_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_THREAD_POOL_H_
