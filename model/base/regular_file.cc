#include "model/base/regular_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/base/errors.h"

namespace tlm {
namespace {

absl::Status NotRegular(const std::string& path) {
  return FailedPrecondition("{}: is not a regular file", path);
}

bool SameTime(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

absl::Status FileError(const std::string& path, std::string_view what) {
  const int error = errno;
  const std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  // The type is checked before opening, which has side effects on some devices; O_NONBLOCK is for a
  // pipe that replaces the file in between.
  struct stat before;
  if (stat(path.c_str(), &before) != 0) return FileError(path, "cannot be opened");
  if (!S_ISREG(before.st_mode)) return NotRegular(path);
  RegularFile file(path, Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  if (file.descriptor() < 0) return FileError(path, "cannot be opened");
  if (fstat(file.descriptor(), &file.opened_) != 0) return FileError(path, "cannot be examined");
  if (!S_ISREG(file.mode())) return NotRegular(path);
  return file;
}

absl::StatusOr<std::string> RegularFile::Read(size_t max_bytes) const {
  if (bytes() > max_bytes) {
    return InvalidArgument("{}: is {} bytes long, the limit is {}", path_, bytes(), max_bytes);
  }
  std::string text(bytes(), '\0');
  TLM_RETURN_IF_ERROR(ReadAt(0, text));
  TLM_RETURN_IF_ERROR(CheckUnchanged());
  return text;
}

absl::Status RegularFile::ReadAt(size_t offset, std::span<char> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(descriptor(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path_, "cannot be read");
    if (got == 0) return CheckUnchanged();
    to = to.subspan(static_cast<size_t>(got));
    offset += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status RegularFile::CheckUnchanged() const {
  struct stat now;
  if (fstat(descriptor(), &now) != 0) return FileError(path_, "cannot be examined");
  if (now.st_size != opened_.st_size) {
    return FailedPrecondition("{}: changed while it was read, from {} to {} bytes", path_,
                              opened_.st_size, now.st_size);
  }
  if (SameTime(now.st_mtim, opened_.st_mtim)) return absl::OkStatus();
  return FailedPrecondition("{}: changed while it was read", path_);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  TLM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  return file.Read(max_bytes);
}

}  // namespace tlm
