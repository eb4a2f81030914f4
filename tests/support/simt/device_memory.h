// Allocates the emulated device's memory. Only kernels and copies may access it. Access by other
// host code crashes with a message if the processor has memory protection keys (x86-64), and is not
// noticed otherwise. A kernel's access outside the pages of an allocation crashes with the kernel's
// name.
#ifndef TLM_TESTS_SUPPORT_SIMT_DEVICE_MEMORY_H_
#define TLM_TESTS_SUPPORT_SIMT_DEVICE_MEMORY_H_

#include <cstddef>

namespace tlm::simt::emulated {

// Memory between guard bytes, which must not be written.
struct GuardedMemory {
  unsigned char* begin = nullptr;  // 256-byte aligned
  size_t bytes = 0;
  void* mapping = nullptr;
  size_t mapping_bytes = 0;  // 0: memory from the heap
  size_t guard_before = 0;
  size_t guard_after = 0;
};

// Returns memory filled with 0xff, which is NaN in every format. `begin` is null if there is no
// memory. With `device`, only kernels and copies may access it.
GuardedMemory AllocateGuarded(size_t bytes, bool device);
void FreeGuarded(const GuardedMemory& memory);
// True if all guard bytes are unchanged.
bool GuardsIntact(const GuardedMemory& memory);

// While an object exists, this thread may access device memory.
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
