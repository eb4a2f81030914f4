// Where the emulated device's memory lies, and who may touch it: kernels and copies. Anything else
// that does crashes with a message, as far as the processor can tell the two apart (memory
// protection keys of x86-64; without them host code gets away with it). Stray accesses of kernels
// crash with the kernel's name where they leave the pages of an allocation.
#ifndef TLM_TESTS_SUPPORT_SIMT_DEVICE_MEMORY_H_
#define TLM_TESTS_SUPPORT_SIMT_DEVICE_MEMORY_H_

#include <cstddef>

namespace tlm::simt::emulated {

// Memory with bytes around it that nobody may write.
struct GuardedMemory {
  unsigned char* begin = nullptr;  // 256-byte aligned
  size_t bytes = 0;
  void* mapping = nullptr;
  size_t mapping_bytes = 0;  // 0: from the heap
  size_t guard_before = 0;
  size_t guard_after = 0;
};

// Filled with 0xff, NaN in every format. Null `begin` if there is none. `device`: only kernels and
// copies may touch it.
GuardedMemory AllocateGuarded(size_t bytes, bool device);
void FreeGuarded(const GuardedMemory& memory);
// Whether all bytes around it are as they were.
bool GuardsIntact(const GuardedMemory& memory);

// While one lives, this thread may touch the device's memory.
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;

 private:
  int rights_before_ = 0;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_DEVICE_MEMORY_H_
