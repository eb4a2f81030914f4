#include "model/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "model/base/descriptor.h"
#include "model/base/errors.h"

namespace tlm {
absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) return NotFound("{}: no such file", path);
    return FailedPrecondition("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return FailedPrecondition("{}: cannot be examined: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return FailedPrecondition("{}: is not a regular file", path);
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile(path, nullptr, 0);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return FailedPrecondition("{}: {} bytes cannot be mapped: {}", path, size,
                              std::strerror(errno));
  }
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

std::span<std::byte> MappedFile::PagesOf(std::span<const std::byte> part) const {
  if (part.empty()) return {};
  TLM_CHECK(part.data() >= data_ && part.data() + part.size() <= data_ + size_);
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = static_cast<size_t>(part.data() - data_) / page * page;
  const size_t end = static_cast<size_t>(part.data() - data_) + part.size();
  return {const_cast<std::byte*>(data_) + first, end - first};
}

void MappedFile::Populate(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = PagesOf(part);
  if (pages.empty()) return;
  // Where the file is not in the system's cache, reading ahead is faster than fault by fault.
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
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  TLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    return InvalidArgument("{}: is {} bytes long, the limit is {}", path, bytes.size(), max_bytes);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace tlm
