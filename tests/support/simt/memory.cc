#include "tests/support/simt/memory.h"

#include <string>

#include "tests/support/simt/device.h"

namespace tlm::simt::emulated {

cudaError_t Memory::Allocate(MemoryKind kind, size_t bytes, void** pointer) {
  ++calls_;
  *pointer = nullptr;
  if (fail_after_ >= 0 && fail_after_-- == 0) return cudaErrorMemoryAllocation;
  if (bytes == 0) return cudaSuccess;
  const bool device = kind == MemoryKind::kDevice;
  if (device && bytes > limit_ - device_bytes_) return cudaErrorMemoryAllocation;
  const GuardedMemory memory = AllocateGuarded(bytes, device);
  if (memory.begin == nullptr) return cudaErrorMemoryAllocation;
  allocations_[reinterpret_cast<uintptr_t>(memory.begin)] = {bytes, kind, memory};
  if (device) device_bytes_ += bytes;
  *pointer = memory.begin;
  return cudaSuccess;
}

cudaError_t Memory::Free(MemoryKind kind, void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  near_begin_ = near_end_ = 0;
  if (kind != MemoryKind::kRegistered) {
    if (!GuardsIntact(found->second.memory)) {
      ReportFailure("memory was written before the beginning or past the end of an allocation of " +
                    std::to_string(found->second.bytes) + " bytes");
    }
    if (kind == MemoryKind::kDevice) device_bytes_ -= found->second.bytes;
    FreeGuarded(found->second.memory);
  }
  allocations_.erase(found);
  return cudaSuccess;
}

cudaError_t Memory::Register(void* pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
  if (Find(pointer, 1) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
  allocations_[reinterpret_cast<uintptr_t>(pointer)] = {bytes, MemoryKind::kRegistered, {}};
  return cudaSuccess;
}

const std::pair<const uintptr_t, Memory::Allocation>* Memory::Find(const void* from,
                                                                   size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  auto after = allocations_.upper_bound(begin);
  if (after == allocations_.begin()) return nullptr;
  const auto& candidate = *--after;
  const size_t offset = begin - candidate.first;
  const bool inside = offset <= candidate.second.bytes && bytes <= candidate.second.bytes - offset;
  return inside ? &candidate : nullptr;
}

bool Memory::Holds(MemoryKind kind, const void* from, size_t bytes) const {
  const auto* found = Find(from, bytes);
  return found != nullptr && found->second.kind == kind;
}

bool Memory::Reaches(const void* from, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  if (begin >= near_begin_ && begin + bytes <= near_end_) return true;
  const auto* found = Find(from, bytes);
  if (found == nullptr) return false;
  near_begin_ = found->first;
  near_end_ = found->first + found->second.bytes;
  return true;
}

}  // namespace tlm::simt::emulated
