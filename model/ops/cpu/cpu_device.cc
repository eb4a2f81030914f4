#include "model/ops/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "model/base/errors.h"

namespace tlm {
namespace {

// Large pages save address translation when weights are streamed.
constexpr size_t kHugePage = size_t{2} << 20;

// Rounds the last page up to a large one, too, if that wastes little.
size_t MappedBytes(size_t bytes) {
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  return rounded - bytes <= bytes / 128 ? rounded : bytes;
}

// Maps memory, which is zero and takes pages only when touched. From kHugePage bytes on, it begins
// at a large page's alignment: more is mapped and the excess unmapped.
void* Map(size_t bytes, MemoryPurpose purpose) {
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* const mapped =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED || slack == 0) return mapped;
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  const size_t end = (before + bytes + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  if (end < bytes + slack) munmap(begin + end, bytes + slack - end);
#if defined(MADV_HUGEPAGE)
  // If the system refuses, small pages are used. Small pages are also better for the first
  // rows of intermediate results and tables: small batches and short contexts would leave large
  // pages almost empty.
  const bool has_rows = purpose == MemoryPurpose::kActivations ||
                        purpose == MemoryPurpose::kLogits || purpose == MemoryPurpose::kRuntime;
  const size_t small = has_rows ? kHugePage : 0;
  if (small > 0) madvise(begin + before, small, MADV_NOHUGEPAGE);
  if (bytes > small) madvise(begin + before + small, bytes - small, MADV_HUGEPAGE);
#endif
  return begin + before;
}

// Returns the number after `label` in a file of lines "label: number kB", in bytes; 0 without such
// a line.
size_t KilobytesIn(const char* path, const std::string& label) {
  std::ifstream file(path);
  std::string word;
  size_t kilobytes = 0;
  while (file >> word) {
    if (word == label && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

}  // namespace

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
  const size_t mapped = MappedBytes(bytes);
  void* const data = Map(mapped, purpose);
  if (data == MAP_FAILED) {
    return ResourceExhausted("{} bytes of memory could not be allocated: {}", bytes,
                             std::strerror(errno));
  }
  std::atomic<size_t>& total = allocated_[static_cast<size_t>(purpose)];
  total.fetch_add(bytes, std::memory_order_relaxed);
  return Buffer(data, bytes, [&total, mapped](void* memory, size_t size) {
    munmap(memory, mapped);
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

std::string CpuDevice::LargePages() const {
  const size_t bytes = KilobytesIn("/proc/self/smaps_rollup", "AnonHugePages:");
  if (bytes == 0) return "no large pages";
  return fmt::format("{} MiB in large pages", bytes >> 20);
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
