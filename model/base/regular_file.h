// Reads untrusted files that may change meanwhile.
#ifndef TLM_MODEL_BASE_REGULAR_FILE_H_
#define TLM_MODEL_BASE_REGULAR_FILE_H_

#include <sys/stat.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/descriptor.h"

namespace tlm {

// An open regular file and its metadata at the time of opening. Move-only. Any thread may read.
class RegularFile {
 public:
  // Follows links and never blocks: pipes, sockets and devices are refused unopened. NOT_FOUND when
  // there is no such file, FAILED_PRECONDITION when it is not a regular file or cannot be opened.
  // Every message begins with the path.
  static absl::StatusOr<RegularFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int descriptor() const { return file_.get(); }
  size_t bytes() const { return static_cast<size_t>(opened_.st_size); }
  mode_t mode() const { return opened_.st_mode; }

  // Returns the content from the start. INVALID_ARGUMENT for more than `max_bytes`, before memory
  // is allocated; FAILED_PRECONDITION when it cannot be read or changes meanwhile.
  absl::StatusOr<std::string> Read(size_t max_bytes) const;

  // Fills `to` from byte `offset` on. FAILED_PRECONDITION when the file cannot be read, or when it
  // ends too early, which means that it has changed.
  absl::Status ReadAt(size_t offset, std::span<char> to) const;

  // FAILED_PRECONDITION when size or modification time have changed since Open().
  absl::Status CheckUnchanged() const;

 private:
  RegularFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Descriptor file_;
  struct stat opened_ {};
};

// Opens and reads a file: Open() and Read().
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// Makes a status "PATH: WHAT: " with the system's reason from errno: NOT_FOUND where there is no
// such file, otherwise FAILED_PRECONDITION.
absl::Status FileError(const std::string& path, std::string_view what);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_REGULAR_FILE_H_
