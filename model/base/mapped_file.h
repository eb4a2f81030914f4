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

// Move-only; unmaps when destroyed. Immutable, so any thread may read. If the file has shrunk, or
// cannot be read, its bytes are zeros from there on, and CheckUnchanged() returns an error: reading
// never ends the process with SIGBUS. The first mapping installs a handler of that signal; faults
// outside all mappings go to the previous handler.
class MappedFile {
 public:
  // As RegularFile::Open; FAILED_PRECONDITION also when it cannot be mapped. An empty file maps to
  // an empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Prefetches `part` of bytes(), so that reading it does not fault page by page. Only advice:
  // other pages are read when they are touched.
  void Populate(std::span<const std::byte> part) const;
  // Unmaps the resident pages of `part` of bytes(), and those that were mapped along with them,
  // from this process; they may stay in the page cache, and are mapped again when they are touched.
  void Release(std::span<const std::byte> part) const;
  // What is mapped, to be read without taking memory for its pages.
  const RegularFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }

  // Call after the bytes were used: FAILED_PRECONDITION when they may differ from those of the file
  // at Open(), because it has been written to or could not be read.
  absl::Status CheckUnchanged() const;

 private:
  struct Guard;  // a mapping, for the handler of SIGBUS

  // The pages of the part, as addresses for advice.
  std::span<std::byte> PagesOf(std::span<const std::byte> part) const;
  static Guard* TakeGuard();
  static void OnBusError(int signal, siginfo_t* fault, void* context);

  explicit MappedFile(RegularFile file) : file_(std::move(file)) {}

  RegularFile file_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  Guard* guard_ = nullptr;  // null while data_ is
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_MAPPED_FILE_H_
