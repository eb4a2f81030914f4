#include "server/auth/watched_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"

namespace tlm {
namespace {

// File systems stamp files with clocks as coarse as two seconds.
constexpr int64_t kYoungNs = 3'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

absl::StatusOr<FileContent> ReadFileWithMode(const std::string& path, size_t max_bytes) {
  TLM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  TLM_ASSIGN_OR_RETURN(std::string text, file.Read(max_bytes));
  return FileContent{std::move(text), file.mode()};
}

WatchedFile::WatchedFile(std::string path, size_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {}

absl::StatusOr<WatchedFile::Version> WatchedFile::Look() const {
  struct stat status;
  if (stat(path_.c_str(), &status) != 0) return FileError(path_, "cannot be opened");
  return Version{status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim),
                 Nanoseconds(status.st_ctim)};
}

absl::StatusOr<std::optional<FileContent>> WatchedFile::ReadIfChanged() {
  // Looks before it reads, so that a later write changes the next look.
  TLM_ASSIGN_OR_RETURN(const Version version, Look());
  if (seen_ == version) return std::nullopt;
  TLM_ASSIGN_OR_RETURN(FileContent content, ReadFileWithMode(path_, max_bytes_));
  const int64_t now = absl::GetCurrentTimeNanos();
  const bool young = std::max(version.modified_ns, version.changed_ns) > now - kYoungNs;
  seen_ = young ? std::nullopt : std::optional<Version>(version);
  return content;
}

}  // namespace tlm
