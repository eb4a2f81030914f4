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

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "server/auth/watched_file.h"

namespace tlm {
namespace {

// The suffix of the new file until it replaces the old one; six random characters follow.
constexpr char kDraftSuffix[] = ".tlm-keys-";

absl::Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path, "cannot write it");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Gives the file open as `fd` the mode and the owner of the one at `path`, so that a server that
// could read the old one can read the new one.
absl::Status CopyAccess(const std::string& path, int fd) {
  struct stat old;
  struct stat fresh;
  if (stat(path.c_str(), &old) != 0 || fstat(fd, &fresh) != 0) {
    return FileError(path, "cannot read its mode");
  }
  const bool other = old.st_uid != fresh.st_uid || old.st_gid != fresh.st_gid;
  if (other && fchown(fd, old.st_uid, old.st_gid) != 0) {
    return FileError(path, "cannot keep its owner and group");
  }
  if (fchmod(fd, old.st_mode & 07777) != 0) return FileError(path, "cannot keep its mode");
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
  if (lock < 0) return FileError(directory, "cannot open it");
  std::unique_ptr<KeyStore> store(new KeyStore(real.string(), lock));
  while (flock(lock, LOCK_EX) != 0) {
    if (errno != EINTR) return FileError(directory, "cannot lock it");
  }
  store->RemoveAbandonedDrafts();
  absl::StatusOr<FileContent> content = ReadFileWithMode(store->path_, kMaxKeyFileBytes);
  if (absl::IsNotFound(content.status()) && missing == Missing::kEmpty) return store;
  TLM_RETURN_IF_ERROR(content.status());
  absl::StatusOr<KeyFile> file = ParseKeyFile(content->text);
  if (!file.ok()) return WithContext(file.status(), store->path_);
  store->exists_ = true;
  store->file_ = *std::move(file);
  return store;
}

KeyStore::~KeyStore() { close(directory_); }

absl::Status KeyStore::Save(absl::FunctionRef<absl::Status()> before_replacing) {
  const std::string text = KeyFileText(file_);
  // A file that cannot be read back would leave the server with the old file, and this program with
  // no readable file.
  if (const absl::Status sound = ParseKeyFile(text).status(); !sound.ok()) {
    return WithContext(sound, path_);
  }
  std::string draft = path_ + kDraftSuffix + "XXXXXX";
  const int fd = mkostemp(draft.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return FileError(path_, "cannot make a file beside it");
  absl::Status status = WriteAll(fd, text, draft);
  if (status.ok() && exists_) status = CopyAccess(path_, fd);
  if (status.ok() && fsync(fd) != 0) status = FileError(draft, "cannot write it");
  close(fd);
  if (status.ok()) status = before_replacing();
  if (status.ok() && std::rename(draft.c_str(), path_.c_str()) != 0) {
    status = FileError(path_, "cannot replace it");
  }
  if (!status.ok()) {
    unlink(draft.c_str());
    return status;
  }
  exists_ = true;
  // Also makes the file's name survive a power cut; not every file system supports that.
  static_cast<void>(fsync(directory_));
  return absl::OkStatus();
}

void KeyStore::RemoveAbandonedDrafts() const {
  const std::filesystem::path file(path_);
  const std::string prefix = file.filename().string() + kDraftSuffix;
  std::error_code error;
  std::filesystem::directory_iterator entry(file.parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(prefix) && name.size() == prefix.size() + 6 &&
        entry->symlink_status(ignored).type() == std::filesystem::file_type::regular) {
      std::filesystem::remove(entry->path(), ignored);
    }
  }
}

}  // namespace tlm
