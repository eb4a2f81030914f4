// The CPU backend's threads: fork-join loops over numbered tasks.
#ifndef TLM_MODEL_OPS_CPU_THREAD_POOL_H_
#define TLM_MODEL_OPS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tlm {

// Returns value / by, rounded up; value >= 0, by > 0.
constexpr int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Has `threads` workers; the calling thread is worker 0. Between loops the others spin for some
// microseconds (a decode step is some hundred loops in quick succession) and then sleep, so that an
// idle server uses no processor. Next to other busy programs they ask for short slices: a loop
// waits for a worker that was interrupted within a task, and with a short slice that worker runs
// again soon. Runs one loop at a time: not thread-safe, but the caller need not be the same thread
// every time.
class ThreadPool {
 public:
  // 1 <= threads <= 4096. `pinned`: worker i > 0 stays on the i-th of the processors that this
  // thread may use, and AdoptCaller keeps worker 0 on the first, so that no other thread of the
  // program makes two of them share one. Pins only if there are as many threads as processors; with
  // fewer threads, the system's scheduler places them better.
  explicit ThreadPool(int threads, bool pinned = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(shares_.size()); }
  bool pinned() const { return pinned_; }

  // Treats the calling thread as a worker, until it calls ReleaseCaller or destroys the pool: it,
  // and threads that it starts, run in short slices and, if the pool is pinned, on the first
  // processor. Use it for the thread that calls all loops from now on; the second call costs next
  // to nothing.
  void AdoptCaller();
  void ReleaseCaller();

  // Calls body(task) once for every task in [0, tasks), in any order and on any of the threads, and
  // returns when all have returned. A worker begins with its own contiguous share of the tasks, in
  // ascending order, and then helps the others with theirs. `body` must not throw and must not call
  // the pool.
  void ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t task)> body);
  // Also passes the worker's number, in [0, threads()): tasks of one worker never overlap in time.
  void ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t task, int worker)> body);

 private:
  // One word holds the number of the loop, whether workers may still join it, and the number of
  // workers in it. A worker joins by counting itself in while the loop is open; the caller closes
  // the loop when no task is left and waits for the workers inside. A worker that the system did
  // not run in time has missed the loop, and the caller does not wait for it.
  //
  //   31 .. 13 number of the loop | 12 open | 11 .. 0 workers inside
  static constexpr uint32_t kInsideMask = (1u << 12) - 1;
  static constexpr uint32_t kOpen = 1u << 12;
  static constexpr uint32_t kNextLoop = 1u << 13;
  static constexpr size_t kCacheLine = 64;

  // A worker's own tasks; [next, end) are not taken yet.
  struct alignas(kCacheLine) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void WorkerMain(int worker);
  // Waits until `state_` differs from `seen`, spinning first.
  void AwaitChange(uint32_t seen) const;
  void RunTasks(int worker);

  // The running loop and its shares. Written while no worker is in the loop, read by workers in it.
  const absl::FunctionRef<void(int64_t, int)>* body_ = nullptr;
  std::vector<Share> shares_;
  bool spins_ = true;
  bool pinned_ = false;
  std::vector<int> processors_;  // usable processors
  std::thread::id caller_;       // the adopted thread, if any
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};
  alignas(kCacheLine) std::atomic<uint32_t> state_{0};
  alignas(kCacheLine) std::vector<std::thread> workers_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_THREAD_POOL_H_
