#include "tests/support/simt/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/simt/block.h"
#include "tests/support/simt/emulator.h"

// Sanitizers watch the heap, not our own mappings.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TLM_FROM_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TLM_FROM_HEAP 1
#endif
#endif

namespace tlm::simt::emulated {
namespace {

constexpr unsigned char kGuard = 0xa5;
constexpr unsigned char kPoison = 0xff;
constexpr size_t kAlignment = 256;

#ifdef TLM_FROM_HEAP

int Key() { return -1; }
void WatchFaults() {}

#else

// Returns the protection key of this process's device memory; -1: the processor or the kernel has
// none.
int Key() {
#if defined(__x86_64__) && defined(PKEY_DISABLE_ACCESS)
  static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
#else
  return -1;
#endif
}

// Reports the kernel or host code at fault, then crashes.
void OnFault(int signal, siginfo_t* info, void*) {
  const bool by_key = Key() >= 0 && info->si_code == SEGV_PKUERR;
  if (current_block != nullptr) {
    current_block->Complain("access to memory that is not there, or no longer");
  } else if (by_key) {
    std::fprintf(stderr, "emulated GPU: host code touches the device's memory\n");
  }
  ::signal(signal, SIG_DFL);  // the access is repeated, and crashes
}

void WatchFaults() {
  static const bool watching = [] {
    struct sigaction action {};
    if (sigaction(SIGSEGV, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return false;
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, nullptr) == 0;
  }();
  static_cast<void>(watching);
}

// Maps whole pages. The data are as close to their end as the alignment allows, followed by a page
// that must not be accessed.
bool MapPages(GuardedMemory& memory) {
  const size_t page = getpagesize();
  const size_t used = (kAlignment + memory.bytes + page - 1) / page * page;
  memory.mapping_bytes = used + page;
  memory.mapping = mmap(nullptr, memory.mapping_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory.mapping == MAP_FAILED) return false;
  auto* first = static_cast<unsigned char*>(memory.mapping);
  memory.begin = first + (used - memory.bytes) / kAlignment * kAlignment;
  memory.guard_before = kAlignment;
  memory.guard_after = first + used - memory.begin - memory.bytes;
  return mprotect(first + used, page, PROT_NONE) == 0;
}

#endif

bool TakeFromHeap(GuardedMemory& memory) {
  return posix_memalign(&memory.mapping, kAlignment, memory.bytes) == 0 &&
         (memory.begin = static_cast<unsigned char*>(memory.mapping)) != nullptr;
}

}  // namespace

GuardedMemory AllocateGuarded(size_t bytes, bool device) {
  WatchFaults();
  GuardedMemory memory;
  memory.bytes = bytes;
#ifdef TLM_FROM_HEAP
  const bool done = TakeFromHeap(memory);
#else
  const bool done = device ? MapPages(memory) : TakeFromHeap(memory);
#endif
  if (!done) return {};
  std::memset(memory.begin - memory.guard_before, kGuard, memory.guard_before);
  std::memset(memory.begin, kPoison, bytes);
  std::memset(memory.begin + bytes, kGuard, memory.guard_after);
#ifndef TLM_FROM_HEAP
  if (device && Key() >= 0) {
    const size_t used = memory.mapping_bytes - getpagesize();
    pkey_mprotect(memory.mapping, used, PROT_READ | PROT_WRITE, Key());
  }
#endif
  return memory;
}

void FreeGuarded(const GuardedMemory& memory) {
  if (memory.mapping_bytes == 0) {
    std::free(memory.mapping);
  } else {
    munmap(memory.mapping, memory.mapping_bytes);
  }
}

bool GuardsIntact(const GuardedMemory& memory) {
  const DeviceMemoryAccess access;
  const auto intact = [](unsigned char byte) { return byte == kGuard; };
  const unsigned char* end = memory.begin + memory.bytes;
  return std::all_of(memory.begin - memory.guard_before, memory.begin, intact) &&
         std::all_of(end, end + memory.guard_after, intact);
}

bool HostAccessIsCaught() { return Key() >= 0; }

#if !defined(TLM_FROM_HEAP) && defined(__x86_64__) && defined(PKEY_DISABLE_ACCESS)
DeviceMemoryAccess::DeviceMemoryAccess() {
  if (Key() < 0) return;
  rights_before_ = pkey_get(Key());
  pkey_set(Key(), 0);
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  if (Key() >= 0) pkey_set(Key(), rights_before_);
}
#else
DeviceMemoryAccess::DeviceMemoryAccess() = default;
DeviceMemoryAccess::~DeviceMemoryAccess() = default;
#endif

}  // namespace tlm::simt::emulated
