// The record of the memory that cudaMalloc and similar calls allocated.
#ifndef TLM_TESTS_SUPPORT_SIMT_MEMORY_H_
#define TLM_TESTS_SUPPORT_SIMT_MEMORY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "tests/support/simt/device_memory.h"

namespace tlm::simt::emulated {

enum class MemoryKind { kDevice, kPinned, kRegistered };

// Not thread-safe: callers hold the device's lock.
class Memory {
 public:
  // Allocates memory, 256-byte aligned and filled with 0xff (NaN in every format). `limit` bounds
  // device memory.
  cudaError_t Allocate(MemoryKind kind, size_t bytes, void** pointer);
  cudaError_t Free(MemoryKind kind, void* pointer);
  // Pins memory that the caller owns.
  cudaError_t Register(void* pointer, size_t bytes);

  // True if [from, from + bytes) is within one allocation of this kind.
  bool Holds(MemoryKind kind, const void* from, size_t bytes) const;
  // True if it is within one allocation of any kind, so that a kernel can access it. Fast near the
  // last answer.
  bool Reaches(const void* from, size_t bytes);
  bool IsPinned(const void* from, size_t bytes) const {
    return Holds(MemoryKind::kPinned, from, bytes) || Holds(MemoryKind::kRegistered, from, bytes);
  }

  void set_limit(size_t bytes) { limit_ = bytes; }
  void set_fail_after(int successes) { fail_after_ = successes; }
  size_t limit() const { return limit_; }
  size_t device_bytes() const { return device_bytes_; }
  size_t allocations() const { return allocations_.size(); }
  uint64_t calls() const { return calls_; }

 private:
  struct Allocation {
    size_t bytes;
    MemoryKind kind;
    GuardedMemory memory;  // for kDevice and kPinned
  };
  const std::pair<const uintptr_t, Allocation>* Find(const void* from, size_t bytes) const;

  std::map<uintptr_t, Allocation> allocations_;
  uintptr_t near_begin_ = 0;  // the allocation of the last successful Reaches
  uintptr_t near_end_ = 0;
  size_t limit_ = size_t{256} << 20;
  size_t device_bytes_ = 0;
  int fail_after_ = -1;
  uint64_t calls_ = 0;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_MEMORY_H_
