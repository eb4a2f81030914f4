#include "model/ops/cpu/kernels/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace tlm {

#if defined(__x86_64__) && defined(__linux__)
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the processor has no such leaf.
Leaf Cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf result;
  __get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

bool ProcessorHasTiles() {
  constexpr uint32_t kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr uint32_t kNeeded = kBf16 | kTile | kInt8;
  if ((Cpuid(7, 0).edx & kNeeded) != kNeeded) return false;
  // Palette 1: ebx = bytes a row | tiles << 16, ecx = rows.
  const Leaf palette = Cpuid(0x1d, 1);
  return (palette.ebx & 0xffffu) >= 64 && palette.ebx >> 16 >= 8 && (palette.ecx & 0xffffu) >= 16;
}

bool SystemSavesTiles() {
  constexpr uint32_t kOsXsave = 1u << 27;
  if ((Cpuid(1, 0).ecx & kOsXsave) == 0) return false;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr uint32_t kTileConfigAndData = 3u << 17;
  return (low & kTileConfigAndData) == kTileConfigAndData;
}

// A thread's first use of a tile grows the state that the system keeps for it, which a process must
// ask for (Linux 5.16; Documentation/arch/x86/xstate.rst).
bool SystemAllowsTiles() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

}  // namespace

bool AmxAvailable() {
  static const bool available = ProcessorHasTiles() && SystemSavesTiles() && SystemAllowsTiles();
  return available;
}
#else
bool AmxAvailable() { return false; }
#endif

}  // namespace tlm
