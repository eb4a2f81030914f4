#include "model/ops/cpu/thread_pool.h"

#include <chrono>

#include "model/base/errors.h"
#include "model/ops/cpu/processors.h"

namespace tlm {
namespace {

// Longer than the gap between two operations of a step, or between two steps of a busy engine;
// shorter than a scheduler time slice.
constexpr std::chrono::microseconds kSpinTime(50);

// The shortest slice that the scheduler grants. Next to as many busy threads as processors, loops
// kept 95 to 100 % of their share of the time with it, and 63 to 92 % with the system's slice of 2
// to 4 ms.
constexpr std::chrono::microseconds kTimeSlice(100);

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool pinned)
    : shares_(static_cast<size_t>(threads)), processors_(UsableProcessors()) {
  // With fewer processors than threads, a spinning thread would keep another from its work.
  spins_ = processors_.empty() || shares_.size() <= processors_.size();
  pinned_ = pinned && threads > 1 && shares_.size() == processors_.size();
  workers_.reserve(shares_.size() - 1);
  for (int worker = 1; worker < threads; ++worker) {
    const int processor = pinned_ ? processors_[static_cast<size_t>(worker)] : -1;
    workers_.emplace_back([this, worker, processor] {
      // A worker that cannot be pinned works unpinned.
      if (processor >= 0) RunOnProcessors({processor});
      SetTimeSlice(kTimeSlice);
      WorkerMain(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  ReleaseCaller();
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kNextLoop, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::AdoptCaller() {
  if (workers_.empty() || caller_ == std::this_thread::get_id()) return;
  if (pinned_) RunOnProcessors({processors_.front()});
  SetTimeSlice(kTimeSlice);
  caller_ = std::this_thread::get_id();
}

void ThreadPool::ReleaseCaller() {
  if (caller_ != std::this_thread::get_id()) return;
  if (pinned_) RunOnProcessors(processors_);
  SetTimeSlice(std::chrono::nanoseconds(0));
  caller_ = std::thread::id();
}

void ThreadPool::ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t)> body) {
  ParallelFor(tasks, [body](int64_t task, int) { body(task); });
}

void ThreadPool::ParallelFor(int64_t tasks, absl::FunctionRef<void(int64_t, int)> body) {
  // A loop within a loop would wait for itself.
  TLM_CHECK(!busy_.exchange(true, std::memory_order_relaxed));
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    busy_.store(false, std::memory_order_relaxed);
    return;
  }
  body_ = &body;
  const auto workers = static_cast<int64_t>(shares_.size());
  const int64_t each = tasks / workers;
  const int64_t more = tasks % workers;  // shares with one additional task
  int64_t begin = 0;
  for (int64_t worker = 0; worker < workers; ++worker) {
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(begin, std::memory_order_relaxed);
    begin += each + (worker < more ? 1 : 0);
    share.end = begin;
  }
  state_.fetch_add(kNextLoop + kOpen, std::memory_order_release);
  state_.notify_all();
  RunTasks(0);
  uint32_t state = state_.fetch_sub(kOpen, std::memory_order_acq_rel) - kOpen;
  while ((state & kInsideMask) != 0) {
    AwaitChange(state);
    state = state_.load(std::memory_order_acquire);
  }
  busy_.store(false, std::memory_order_relaxed);
}

void ThreadPool::WorkerMain(int worker) {
  uint32_t state = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if ((state & kOpen) == 0) {
      AwaitChange(state);
      state = state_.load(std::memory_order_acquire);
      continue;
    }
    // On failure, `state` has the current value.
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) continue;
    RunTasks(worker);
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
  if (spins_) {
    const auto begin = std::chrono::steady_clock::now();
    do {
      for (int spin = 0; spin < 32; ++spin) {
        if (state_.load(std::memory_order_acquire) != seen) return;
        CpuRelax();
      }
    } while (std::chrono::steady_clock::now() - begin < kSpinTime);
  }
  state_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::RunTasks(int worker) {
  const size_t workers = shares_.size();
  for (size_t turn = 0; turn < workers; ++turn) {
    Share& share = shares_[(static_cast<size_t>(worker) + turn) % workers];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= share.end) break;
      (*body_)(task, worker);
    }
  }
}

}  // namespace tlm
