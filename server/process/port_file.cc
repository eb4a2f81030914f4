#include "server/process/port_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "model/base/descriptor.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"

namespace tlm {
namespace {

constexpr size_t kMaxBytes = 6;  // "65535\n"

absl::Status CannotWrite(std::string_view flag, const std::string& path) {
  return FailedPrecondition("--{}: {} cannot be written: {}", flag, path, std::strerror(errno));
}

// Returns whether an earlier server left the file, or mktemp made it.
bool IsPortFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
  return text.ok() && (text->empty() || text->back() == '\n') &&
         std::all_of(text->begin(), text->end(),
                     [](char c) { return c == '\n' || absl::ascii_isdigit(c); });
}

}  // namespace

absl::Status PortFile::Check(std::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  struct stat there;
  if (lstat(path.c_str(), &there) != 0) {
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    const bool free = errno == ENOENT && access(folder.c_str(), W_OK | X_OK) == 0;
    return free ? absl::OkStatus() : CannotWrite(flag, path);
  }
  if (S_ISREG(there.st_mode) && IsPortFile(path)) return absl::OkStatus();
  return FailedPrecondition(
      "--{}: {} would be replaced and removed; it must be a regular file that is empty or holds a "
      "port number, or not be there",
      flag, path);
}

absl::StatusOr<PortFile> PortFile::Create(std::string_view flag, const std::string& path,
                                          int port) {
  TLM_RETURN_IF_ERROR(Check(flag, path));
  if (path.empty()) return PortFile("");
  const std::string draft = fmt::format("{}.{}", path, getpid());
  unlink(draft.c_str());  // left by a killed server with the same id
  const Descriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return CannotWrite(flag, path);
  const std::string text = fmt::format("{}\n", port);
  struct stat made;
  const bool written = write(file.get(), text.data(), text.size()) == ssize_t(text.size()) &&
                       fstat(file.get(), &made) == 0;
  if (!written || std::rename(draft.c_str(), path.c_str()) != 0) {
    const absl::Status status = CannotWrite(flag, path);
    unlink(draft.c_str());
    return status;
  }
  PortFile result(path);
  result.text_ = text;
  result.inode_ = made.st_ino;
  return result;
}

PortFile::PortFile(PortFile&& other) noexcept
    : path_(std::exchange(other.path_, "")), text_(other.text_), inode_(other.inode_) {}

void PortFile::Remove() const {
  if (path_.empty()) return;
  struct stat there;
  // Compares the text too: the number of a removed inode is used again.
  const bool own = lstat(path_.c_str(), &there) == 0 && S_ISREG(there.st_mode) &&
                   there.st_ino == inode_ && ReadFile(path_, kMaxBytes).value_or("") == text_;
  if (own) unlink(path_.c_str());
}

}  // namespace tlm
