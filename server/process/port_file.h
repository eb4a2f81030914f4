// Tells scripts which port the server got.
#ifndef TLM_SERVER_PROCESS_PORT_FILE_H_
#define TLM_SERVER_PROCESS_PORT_FILE_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// The file exists as long as the object, unless another server replaces it. Move-only.
class PortFile {
 public:
  // OK where there is no file, or one that Create() may replace: a regular file, no link, that is
  // empty or holds a port number. FAILED_PRECONDITION names flag and path. An empty path is OK.
  static absl::Status Check(std::string_view flag, const std::string& path);

  // Writes the number and a line feed under another name and renames it, so that no reader sees
  // half of it. An empty path makes no file. FAILED_PRECONDITION as Check(), or with the system's
  // reason; then nothing is left behind.
  static absl::StatusOr<PortFile> Create(std::string_view flag, const std::string& path, int port);

  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&& other) = delete;
  ~PortFile() { Remove(); }

  // Removes the file if it is still the one that Create() made. From any thread.
  void Remove() const;

 private:
  explicit PortFile(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: nothing to remove
  std::string text_;
  ino_t inode_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_PORT_FILE_H_
