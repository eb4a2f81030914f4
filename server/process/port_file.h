// Writes the number of a port to a file, for scripts.
#ifndef TLM_SERVER_PROCESS_PORT_FILE_H_
#define TLM_SERVER_PROCESS_PORT_FILE_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// The file exists as long as this object, unless another server replaces it. Move-only.
class PortFile {
 public:
  // Returns OK if there is no file, or a file that Create() may replace: a regular file, not a
  // link, that is empty or contains a port number. FAILED_PRECONDITION names flag and path. An
  // empty path is OK.
  static absl::Status Check(std::string_view flag, const std::string& path);

  // Writes the number and a line feed to another file and renames it, so that readers never see a
  // part. An empty path makes no file. FAILED_PRECONDITION as from Check(), or with the system's
  // reason; no file is left then.
  static absl::StatusOr<PortFile> Create(std::string_view flag, const std::string& path, int port);

  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&& other) = delete;
  ~PortFile() { Remove(); }

  // Removes the file if it is still the one that Create() made. Callable from any thread.
  void Remove() const;

 private:
  explicit PortFile(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: nothing to remove
  std::string text_;
  ino_t inode_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_PORT_FILE_H_
