// A read-only memory-mapped file.
#ifndef TLM_MODEL_BASE_MAPPED_FILE_H_
#define TLM_MODEL_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

// Move-only; unmaps when destroyed. Immutable, so any thread may read. A file that another process
// truncates while it is mapped makes reads fault (SIGBUS): model files must not change while
// served.
class MappedFile {
 public:
  // NOT_FOUND when there is no such file, FAILED_PRECONDITION when it is not a regular file or
  // cannot be read or mapped. An empty file maps to an empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Brings `part` of bytes() to memory ahead of its use, so that reading it does not fault page by
  // page. Only advice: what the system does not take is read when it is touched.
  void Populate(std::span<const std::byte> part) const;
  // Gives back the memory of the pages that `part` of bytes() touches, which counts as this
  // process's while they are mapped; the system may keep them in its cache. They are read again
  // when they are touched again.
  void Release(std::span<const std::byte> part) const;
  const std::string& path() const { return path_; }

 private:
  // The pages of the part, as addresses for advice.
  std::span<std::byte> PagesOf(std::span<const std::byte> part) const;

  MappedFile(std::string path, const std::byte* data, size_t size);

  std::string path_;
  const std::byte* data_;
  size_t size_;
};

// Reads a whole file of at most `max_bytes`; a larger one is INVALID_ARGUMENT, checked before
// memory is allocated. NOT_FOUND and FAILED_PRECONDITION as above.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_MAPPED_FILE_H_
