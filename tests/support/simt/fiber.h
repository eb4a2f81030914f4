// A stack for each thread of an emulated block, and the switch between two of them.
#ifndef TLM_TESTS_SUPPORT_SIMT_FIBER_H_
#define TLM_TESTS_SUPPORT_SIMT_FIBER_H_

#include <cstddef>

namespace tlm::simt::emulated {

// A line of execution that can be suspended and continued. A default-constructed Fiber represents
// the caller's own stack; it can be the first `from`. Not thread-safe: fibers that switch to each
// other stay on one thread. A suspended fiber may be dropped; objects on its stack are then not
// destroyed.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Gives this fiber a stack, once. `number` staggers the stacks' beginnings, so that many stacks
  // use different cache sets.
  void Allocate(int number);
  // Makes the next switch to this fiber call `entry`, which must never return. Drops the fiber's
  // previous state.
  void Begin(void (*entry)());
  // Suspends `from`, which is running, and continues this fiber. With `for_good`, `from` is not
  // continued before its next Begin.
  void SwitchFrom(Fiber& from, bool for_good = false);
  // `entry` must call this first.
  static void Entered();

 private:
  void* stack_pointer_ = nullptr;
  unsigned char* mapping_ = nullptr;  // guard page, then the stack
  unsigned char* top_ = nullptr;
  // The sanitizers' handles of this stack.
  void* thread_sanitizer_fiber_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_FIBER_H_
