#include "tests/support/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define TLM_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TLM_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TLM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TLM_THREAD_SANITIZER 1
#endif
#endif

#ifdef TLM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TLM_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

// Saves the callee-saved registers on the running stack, stores the stack pointer in *save, and
// continues the stack `to` where it was left. swapcontext() would also do, but makes a system call
// for the signal mask at every switch.
extern "C" void tlm_simt_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl tlm_simt_switch
.type tlm_simt_switch,@function
tlm_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size tlm_simt_switch,.-tlm_simt_switch
)");
namespace {
constexpr int kSavedWords = 7;  // six registers and the return address
constexpr int kReturnWord = 6;
constexpr int kWordsAbove = 3;  // at a function's entry the stack is 8 past a multiple of 16
}  // namespace
#elif defined(__aarch64__)
asm(R"(
.text
.globl tlm_simt_switch
.type tlm_simt_switch,%function
tlm_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size tlm_simt_switch,.-tlm_simt_switch
)");
namespace {
constexpr int kSavedWords = 20;
constexpr int kReturnWord = 11;  // x30
constexpr int kWordsAbove = 2;
}  // namespace
#else
#error "tests/support/simt/fiber.cc: no stack switch is written for this processor"
#endif

namespace tlm::simt::emulated {
namespace {

// Kernels have tiles in local arrays; sanitized builds also keep every temporary, and red zones.
#ifdef TLM_ADDRESS_SANITIZER
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif
constexpr size_t kStagger = 192;
constexpr int kStaggers = 16;

#ifdef TLM_ADDRESS_SANITIZER
// The place for the bounds of the stack that the current switch leaves; they are known only on
// arrival.
thread_local const void** left_bottom = nullptr;
thread_local size_t* left_size = nullptr;
#endif

}  // namespace

Fiber::~Fiber() {
#ifdef TLM_THREAD_SANITIZER
  if (mapping_ != nullptr && thread_sanitizer_fiber_ != nullptr) {
    __tsan_destroy_fiber(thread_sanitizer_fiber_);
  }
#endif
  if (mapping_ != nullptr) munmap(mapping_, size_ + getpagesize());
}

void Fiber::Allocate(int number) {
  const size_t page = getpagesize();
  size_ = kStackBytes;
  void* mapping = mmap(nullptr, size_ + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, page, PROT_NONE) != 0) {
    std::perror("fiber: mmap");
    std::abort();
  }
  mapping_ = static_cast<unsigned char*>(mapping);
  bottom_ = mapping_ + page;
  top_ = mapping_ + page + size_ - kStagger * (number % kStaggers);
}

void Fiber::Begin(void (*entry)()) {
#ifdef TLM_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(bottom_, size_);
#endif
#ifdef TLM_THREAD_SANITIZER
  if (thread_sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(thread_sanitizer_fiber_);
  thread_sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  auto* words = reinterpret_cast<uint64_t*>(top_) - kWordsAbove - kSavedWords;
  for (int i = 0; i < kSavedWords + kWordsAbove; ++i) words[i] = 0;
  words[kReturnWord] = reinterpret_cast<uint64_t>(entry);
  stack_pointer_ = words;
}

void Fiber::SwitchFrom(Fiber& from, bool for_good) {
#ifdef TLM_THREAD_SANITIZER
  if (from.mapping_ == nullptr) from.thread_sanitizer_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_sanitizer_fiber_, 0);
#endif
#ifdef TLM_ADDRESS_SANITIZER
  left_bottom = from.mapping_ == nullptr ? &from.bottom_ : nullptr;
  left_size = from.mapping_ == nullptr ? &from.size_ : nullptr;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, bottom_, size_);
  tlm_simt_switch(&from.stack_pointer_, stack_pointer_);
  __sanitizer_finish_switch_fiber(fake_stack, left_bottom, left_size);
#else
  tlm_simt_switch(&from.stack_pointer_, stack_pointer_);
#endif
}

void Fiber::Entered() {
#ifdef TLM_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, left_bottom, left_size);
#endif
}

}  // namespace tlm::simt::emulated
