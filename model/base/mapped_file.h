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

// Move-only; unmaps when destroyed. Immutable, so any thread may read. Where the file has shrunk
// since, or the system cannot read it, its bytes are zeros from there on, and CheckUnchanged() says
// so: reading them never ends the process (SIGBUS). For that the first mapping takes the signal's
// handler; faults outside all mappings go to the handler before it.
class MappedFile {
 public:
  // As RegularFile::Open; FAILED_PRECONDITION also when it cannot be mapped. An empty file maps to
  // an empty span.
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
  const std::string& path() const { return file_.path(); }

  // To be asked after the bytes were used: FAILED_PRECONDITION when they need not be those of the
  // file at Open(), because it has been written to or could not be read.
  absl::Status CheckUnchanged() const;

 private:
  struct Guard;  // what the handler of SIGBUS knows of a mapping

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
