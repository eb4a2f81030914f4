// A stack for each thread of an emulated block, and the switch between two of them.
#ifndef TLM_TESTS_SUPPORT_SIMT_FIBER_H_
#define TLM_TESTS_SUPPORT_SIMT_FIBER_H_

#include <cstddef>

namespace tlm::simt::emulated {

// A line of execution that can be left and continued. A default-constructed Fiber stands for the
// caller's own stack; it can be switched from first. Not thread-safe: fibers that switch to each
// other stay on one thread. A suspended fiber may be dropped; objects on its stack are then not
// destroyed.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Gives this fiber a stack, once. `number` staggers where stacks begin, so that many stacks use
  // different cache sets.
  void Allocate(int number);
  // The next switch to this fiber calls `entry`, which must never return. Forgets where the fiber
  // was.
  void Begin(void (*entry)());
  // Suspends `from`, which is running, and continues this fiber. `for_good`: `from` is not
  // continued before its next Begin.
  void SwitchFrom(Fiber& from, bool for_good = false);
  // `entry` must call this first.
  static void Entered();

 private:
  void* stack_pointer_ = nullptr;
  unsigned char* mapping_ = nullptr;  // guard page, then the stack
  unsigned char* top_ = nullptr;
  // The sanitizers' handle of this stack.
  void* thread_sanitizer_fiber_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_FIBER_H_
