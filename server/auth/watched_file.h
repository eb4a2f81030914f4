// Watches a small file of credentials that may be replaced or written while the server runs.
#ifndef TLM_SERVER_AUTH_WATCHED_FILE_H_
#define TLM_SERVER_AUTH_WATCHED_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

struct FileContent {
  std::string text;
  mode_t mode = 0;  // permissions
};

// Reads a whole file; errors as of ReadFile (model/base/regular_file.h).
absl::StatusOr<FileContent> ReadFileWithMode(const std::string& path, size_t max_bytes);

// Detects changes of a file by its metadata: renames over it, changed links, writes in place. Not
// thread-safe.
class WatchedFile {
 public:
  WatchedFile(std::string path, size_t max_bytes);

  const std::string& path() const { return path_; }
  // Returns the content if it may have changed since the last call that returned content, else
  // nullopt. Errors as of ReadFileWithMode, at every call.
  absl::StatusOr<std::optional<FileContent>> ReadIfChanged();

 private:
  // Equal versions mean that the file was not written in between, except when seen_ is nullopt.
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    bool operator==(const Version&) const = default;
  };

  absl::StatusOr<Version> Look() const;

  const std::string path_;
  const size_t max_bytes_;
  // The version of the content returned last. nullopt: the file was so recent that another write
  // could leave the same times, so it must be read again.
  std::optional<Version> seen_;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_WATCHED_FILE_H_
