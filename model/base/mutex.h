// std::mutex and std::condition_variable with Clang's thread-safety annotations. -Wthread-safety
// checks them; other compilers see plain code. The primitives underneath are plain std ones because
// ThreadSanitizer understands these, but not the distribution's absl::Mutex.
#ifndef TLM_MODEL_BASE_MUTEX_H_
#define TLM_MODEL_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TLM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TLM_THREAD_ANNOTATION(x)
#endif
#define TLM_CAPABILITY(x) TLM_THREAD_ANNOTATION(capability(x))
#define TLM_SCOPED_CAPABILITY TLM_THREAD_ANNOTATION(scoped_lockable)
#define TLM_GUARDED_BY(x) TLM_THREAD_ANNOTATION(guarded_by(x))
#define TLM_REQUIRES(...) TLM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define TLM_EXCLUDES(...) TLM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define TLM_ACQUIRE(...) TLM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TLM_RELEASE(...) TLM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TLM_NO_THREAD_SAFETY_ANALYSIS TLM_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace tlm {

class TLM_CAPABILITY("mutex") Mutex {
 public:
  void Lock() TLM_ACQUIRE() { mutex_.lock(); }
  void Unlock() TLM_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class TLM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) TLM_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() TLM_RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  // Waits may end without cause: call it in a loop that tests the condition.
  void Wait(Mutex* mutex) TLM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when `timeout` passed without a wake-up.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) TLM_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_MUTEX_H_
