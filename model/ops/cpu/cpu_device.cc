#include "model/ops/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/base/errors.h"

namespace tlm {

CpuDevice::CpuDevice(const std::string& name, std::string_view arithmetic) {
  info_.backend = "cpu";
  info_.name = name;
  info_.arithmetic = arithmetic;
  info_.total_bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  info_.host_addressable = true;
}

absl::StatusOr<Buffer> CpuDevice::Allocate(size_t bytes, MemoryPurpose purpose) {
  if (bytes > info_.total_bytes) {
    return ResourceExhausted("{} bytes of memory asked for, the machine has {}", bytes,
                             info_.total_bytes);
  }
  if (bytes == 0) return Buffer();
  // Pages come zeroed and only when touched; large ones spare the address translation when weights
  // are streamed.
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("{} bytes of memory could not be had: {}", bytes,
                             std::strerror(errno));
  }
#if defined(MADV_HUGEPAGE)
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  std::atomic<size_t>& total = allocated_[static_cast<size_t>(purpose)];
  total.fetch_add(bytes, std::memory_order_relaxed);
  return Buffer(data, bytes, [&total](void* memory, size_t size) {
    munmap(memory, size);
    total.fetch_sub(size, std::memory_order_relaxed);
  });
}

std::array<size_t, kMemoryPurposes> CpuDevice::AllocatedBytes() const {
  std::array<size_t, kMemoryPurposes> bytes{};
  for (int purpose = 0; purpose < kMemoryPurposes; ++purpose) {
    bytes[purpose] = allocated_[purpose].load(std::memory_order_relaxed);
  }
  return bytes;
}

absl::Status CpuDevice::CopyToDevice(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyToHost(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyOnDevice(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

}  // namespace tlm
