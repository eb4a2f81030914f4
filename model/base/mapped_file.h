// A read-only memory-mapped file.
#ifndef TLM_MODEL_BASE_MAPPED_FILE_H_
#define TLM_MODEL_BASE_MAPPED_FILE_H_

#include <signal.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/regular_file.h"

namespace tlm {

// Move-only; unmaps when destroyed. Immutable, so any thread may read. If the file has shrunk or
// cannot be read, its bytes are zeros from that place on, and CheckUnchanged() returns an error:
// reading never ends the process with SIGBUS. The first mapping installs a handler of that signal;
// it passes faults outside all mappings to the previous handler.
class MappedFile {
 public:
  // Returns the errors of RegularFile::Open, and FAILED_PRECONDITION for a file that cannot be
  // mapped. An empty file maps to an empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Prefetches `part` of bytes(), so that reading it does not fault page by page. This is only
  // advice: other pages are read when they are touched.
  void Populate(std::span<const std::byte> part) const;
  // Unmaps the resident pages of `part` of bytes(), and pages that were mapped along with them,
  // from this process. They may stay in the page cache, and are mapped again when they are touched.
  void Release(std::span<const std::byte> part) const;
  // The mapped file, for reads that allocate no memory for its pages.
  const RegularFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }

  // Call after the bytes were used. FAILED_PRECONDITION when the file has been written to since
  // Open() or could not be read: the bytes may then differ from its content at Open().
  absl::Status CheckUnchanged() const;

 private:
  struct Guard;  // the record of a mapping, for the handler of SIGBUS

  // Returns the pages of `part` as addresses for advice.
  std::span<std::byte> PagesOf(std::span<const std::byte> part) const;
  static Guard* TakeGuard();
  static void OnBusError(int signal, siginfo_t* fault, void* context);

  explicit MappedFile(RegularFile file) : file_(std::move(file)) {}

  RegularFile file_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  Guard* guard_ = nullptr;  // null exactly when data_ is null
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_MAPPED_FILE_H_
