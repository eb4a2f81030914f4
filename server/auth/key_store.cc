#include "server/auth/key_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "server/auth/credential_file.h"

namespace tlm {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  return FailedPrecondition("{}: {}: {}", path, what, std::strerror(errno));
}

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(path, "cannot write it");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Gives the file behind `fd` the mode and the owner of the one at `path`, so that the server that
// could read the old one can read the new one.
absl::Status CopyAccess(const std::string& path, int fd) {
  struct stat old;
  struct stat fresh;
  if (stat(path.c_str(), &old) != 0 || fstat(fd, &fresh) != 0) {
    return SystemError(path, "cannot read its mode");
  }
  const bool other = old.st_uid != fresh.st_uid || old.st_gid != fresh.st_gid;
  if (other && fchown(fd, old.st_uid, old.st_gid) != 0) {
    return SystemError(path, "cannot keep its owner and group");
  }
  if (fchmod(fd, old.st_mode & 07777) != 0) return SystemError(path, "cannot keep its mode");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeyStore>> KeyStore::Open(const std::string& path, Missing missing) {
  std::error_code error;
  const std::filesystem::path real =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) return FailedPrecondition("{}: {}", path, error.message());
  if (std::filesystem::is_symlink(real, error)) {
    return FailedPrecondition("{}: is a symbolic link to nothing", path);
  }
  const std::string directory = real.parent_path().string();
  const int lock = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return SystemError(directory, "cannot open it");
  std::unique_ptr<KeyStore> store(new KeyStore(real.string(), lock));
  while (flock(lock, LOCK_EX) != 0) {
    if (errno != EINTR) return SystemError(directory, "cannot lock it");
  }
  absl::StatusOr<FileContent> content = ReadCredentialFile(store->path_, kMaxKeyFileBytes);
  if (absl::IsNotFound(content.status()) && missing == Missing::kEmpty) return store;
  TLM_RETURN_IF_ERROR(content.status());
  absl::StatusOr<KeyFile> file = ParseKeyFile(content->text);
  if (!file.ok()) return WithContext(file.status(), store->path_);
  store->exists_ = true;
  store->file_ = *std::move(file);
  return store;
}

KeyStore::~KeyStore() { close(directory_); }

absl::Status KeyStore::Save() {
  const std::string text = KeyFileText(file_);
  // What could not be read back would leave the server with the old file, and this program without
  // any.
  if (const absl::Status sound = ParseKeyFile(text).status(); !sound.ok()) {
    return WithContext(sound, path_);
  }
  std::string temporary = path_ + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return SystemError(path_, "cannot make a file beside it");
  absl::Status status = WriteAll(fd, text, temporary);
  if (status.ok() && exists_) status = CopyAccess(path_, fd);
  if (status.ok() && fsync(fd) != 0) status = SystemError(temporary, "cannot write it");
  close(fd);
  if (status.ok() && std::rename(temporary.c_str(), path_.c_str()) != 0) {
    status = SystemError(path_, "cannot replace it");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  exists_ = true;
  // The name, too, is to outlive a power cut; where a file system does not know how, it may not.
  static_cast<void>(fsync(directory_));
  return absl::OkStatus();
}

}  // namespace tlm
