#include "server/auth/credential_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "model/base/descriptor.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// File systems stamp files with clocks as coarse as two seconds.
constexpr int64_t kYoungNs = 3'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<FileContent> ReadCredentialFile(const std::string& path, size_t max_bytes) {
  // O_NONBLOCK: opening a pipe waits for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError(path, "cannot open it");
  struct stat status;
  if (fstat(file.get(), &status) != 0) return SystemError(path, "cannot read it");
  if (!S_ISREG(status.st_mode)) return FailedPrecondition("{}: is not a regular file", path);
  FileContent content{"", status.st_mode};
  constexpr size_t kPiece = size_t{64} << 10;
  for (;;) {
    const size_t size = content.text.size();
    content.text.resize(size + std::min(kPiece, max_bytes + 1 - size));
    const ssize_t got = read(file.get(), content.text.data() + size, content.text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "cannot read it");
    content.text.resize(size + static_cast<size_t>(got));
    if (got == 0) return content;
    if (content.text.size() > max_bytes) {
      return InvalidArgument("{}: is larger than {} bytes", path, max_bytes);
    }
  }
}

CredentialFile::CredentialFile(std::string path, size_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {}

absl::StatusOr<CredentialFile::Version> CredentialFile::Look() const {
  struct stat status;
  if (stat(path_.c_str(), &status) != 0) return SystemError(path_, "cannot open it");
  return Version{status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim),
                 Nanoseconds(status.st_ctim)};
}

absl::StatusOr<std::optional<FileContent>> CredentialFile::ReadIfChanged() {
  // The look comes first: a write behind it changes the next one.
  TLM_ASSIGN_OR_RETURN(const Version version, Look());
  if (seen_ == version) return std::nullopt;
  TLM_ASSIGN_OR_RETURN(FileContent content, ReadCredentialFile(path_, max_bytes_));
  const int64_t now = absl::GetCurrentTimeNanos();
  const bool young = std::max(version.modified_ns, version.changed_ns) > now - kYoungNs;
  seen_ = young ? std::nullopt : std::optional<Version>(version);
  return content;
}

}  // namespace tlm
