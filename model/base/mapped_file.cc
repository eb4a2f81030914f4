#include "model/base/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "model/base/errors.h"

namespace tlm {
namespace {

// The kernel maps this many bytes, aligned to their number, when one page of them is touched
// (fault_around_bytes).
constexpr size_t kAroundBytes = size_t{64} << 10;

struct sigaction former_handler;  // the handler of SIGBUS before the first mapping

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

// Never freed, because the handler may be reading it: later mappings reuse free ones.
struct MappedFile::Guard {
  std::atomic<bool> taken{true};
  std::atomic<uintptr_t> begin{0}, end{0};  // addresses; equal: no mapping
  std::atomic<bool> faulted{false};         // zeros have replaced some pages
  Guard* next = nullptr;

  static std::atomic<Guard*> first;
};

std::atomic<MappedFile::Guard*> MappedFile::Guard::first{nullptr};

MappedFile::Guard* MappedFile::TakeGuard() {
  for (Guard* guard = Guard::first; guard != nullptr; guard = guard->next) {
    if (!guard->taken.exchange(true)) return guard;
  }
  auto* const guard = new Guard;
  guard->next = Guard::first;
  while (!Guard::first.compare_exchange_weak(guard->next, guard)) {
  }
  return guard;
}

// Maps zero pages from the unreadable page on, so that the access returns. Calls only functions
// that a signal handler may call.
void MappedFile::OnBusError(int, siginfo_t* fault, void*) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(fault->si_addr);
  for (Guard* guard = Guard::first; guard != nullptr; guard = guard->next) {
    const uintptr_t end = guard->end;
    if (address < guard->begin || address >= end) continue;
    guard->faulted = true;
    const uintptr_t page = address / PageBytes() * PageBytes();
    void* const zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,  // NOLINT
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    errno = error;
    if (zeros != MAP_FAILED) return;
  }
  // The address is in none of these mappings: the access faults again.
  sigaction(SIGBUS, &former_handler, nullptr);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  static const int handling = [] {
    PageBytes();
    struct sigaction handler {};
    handler.sa_sigaction = OnBusError;
    handler.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGBUS, &handler, &former_handler);
  }();
  TLM_CHECK(handling == 0);
  TLM_ASSIGN_OR_RETURN(RegularFile opened, RegularFile::Open(path));
  MappedFile file(std::move(opened));
  const size_t size = file.file_.bytes();
  if (size == 0) return file;
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.file_.descriptor(), 0);
  if (data == MAP_FAILED) {
    return FailedPrecondition("{}: {} bytes cannot be mapped: {}", path, size,
                              std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.guard_ = TakeGuard();
  file.guard_->faulted = false;
  file.guard_->begin = reinterpret_cast<uintptr_t>(data);
  file.guard_->end = reinterpret_cast<uintptr_t>(data) + size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::exchange(other.guard_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  guard_->end = 0;
  guard_->begin = 0;
  munmap(const_cast<std::byte*>(data_), size_);
  guard_->taken = false;
}

absl::Status MappedFile::CheckUnchanged() const {
  TLM_RETURN_IF_ERROR(file_.CheckUnchanged());
  if (guard_ == nullptr || !guard_->faulted) return absl::OkStatus();
  return FailedPrecondition("{}: a part of it could not be read", path());
}

std::span<std::byte> MappedFile::PagesOf(std::span<const std::byte> part) const {
  if (part.empty()) return {};
  TLM_CHECK(part.data() >= data_ && part.data() + part.size() <= data_ + size_);
  const size_t page = PageBytes();
  const size_t first = static_cast<size_t>(part.data() - data_) / page * page;
  const size_t end = static_cast<size_t>(part.data() - data_) + part.size();
  return {const_cast<std::byte*>(data_) + first, end - first};
}

void MappedFile::Populate(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = PagesOf(part);
  if (pages.empty()) return;
  // If the file is not in the system's cache, reading ahead is faster than one fault after another.
  unsigned char cached = 0;
  if (mincore(pages.data(), 1, &cached) == 0 && (cached & 1u) == 0) {
    madvise(pages.data(), pages.size(), MADV_WILLNEED);
  }
#if defined(MADV_POPULATE_READ)
  madvise(pages.data(), pages.size(), MADV_POPULATE_READ);
#endif
}

void MappedFile::Release(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = PagesOf(part);
  if (pages.empty()) return;
  // When a page is touched, the kernel maps its neighbours, too.
  const auto mapping = reinterpret_cast<uintptr_t>(data_);
  const auto begin = reinterpret_cast<uintptr_t>(pages.data()) / kAroundBytes * kAroundBytes;
  const uintptr_t first = std::max(begin, mapping);
  const uintptr_t end =
      (reinterpret_cast<uintptr_t>(pages.data()) + pages.size() + kAroundBytes - 1) / kAroundBytes *
      kAroundBytes;
  madvise(const_cast<std::byte*>(data_) + (first - mapping), std::min(end, mapping + size_) - first,
          MADV_DONTNEED);
}

}  // namespace tlm
