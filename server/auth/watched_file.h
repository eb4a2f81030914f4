// A small file with credentials that others replace or write while the server runs.
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

// The whole of a file; errors as of ReadFile (model/base/regular_file.h).
absl::StatusOr<FileContent> ReadFileWithMode(const std::string& path, size_t max_bytes);

// Tells changes of one file by its metadata: renames over it, links that lead elsewhere, writes in
// place. Not thread-safe.
class WatchedFile {
 public:
  WatchedFile(std::string path, size_t max_bytes);

  const std::string& path() const { return path_; }
  // The content, when it may have changed since the last call that gave one; nullopt when it has
  // not. Errors as ReadFileWithMode's, at every call.
  absl::StatusOr<std::optional<FileContent>> ReadIfChanged();

 private:
  // Two equal versions: the file was not written in between, but for the case below.
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
  // Of the content given last; nullopt: the file was so young then that another write could leave
  // the same times behind, so that it has to be read again.
  std::optional<Version> seen_;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_WATCHED_FILE_H_
