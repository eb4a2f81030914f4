#include "model/ops/cpu/thread_pool.h"

namespace tlm {
namespace {

// About ten microseconds: longer than the gap between two operations of a step, shorter than a time
// slice that another thread would miss.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerMain(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kNextLoop, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t)> body) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  body_ = &body;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  state_.fetch_add(kNextLoop + kOpen, std::memory_order_release);
  state_.notify_all();
  RunTasks();
  uint32_t state = state_.fetch_sub(kOpen, std::memory_order_acq_rel) - kOpen;
  while ((state & kInsideMask) != 0) {
    AwaitChange(state);
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WorkerMain() {
  uint32_t state = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if ((state & kOpen) == 0) {
      AwaitChange(state);
      state = state_.load(std::memory_order_acquire);
      continue;
    }
    // On failure `state` is what it is now.
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) continue;
    RunTasks();
    state = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((state & kInsideMask) == 0) state_.notify_all();
    // Still open, but without tasks: wait until the caller closes it.
    while ((state & kOpen) != 0) {
      AwaitChange(state);
      const uint32_t now = state_.load(std::memory_order_acquire);
      const bool same_loop = now / kNextLoop == state / kNextLoop;
      state = now;
      if (!same_loop) break;
    }
  }
}

void ThreadPool::AwaitChange(uint32_t seen) const {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (state_.load(std::memory_order_acquire) != seen) return;
    CpuRelax();
  }
  state_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::RunTasks() {
  while (true) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    (*body_)(task);
  }
}

}  // namespace tlm
