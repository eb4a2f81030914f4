// Tells scripts which port the server got.
#ifndef TLM_SERVER_PORT_FILE_H_
#define TLM_SERVER_PORT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tlm {

// The file exists as long as the object. Move-only.
class PortFile {
 public:
  // Writes the number and a line feed under another name and renames it, so that no reader sees
  // half of it. An empty path makes no file. FAILED_PRECONDITION names the path and the system's
  // reason.
  static absl::StatusOr<PortFile> Create(const std::string& path, int port);

  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&& other) = delete;
  ~PortFile();

 private:
  explicit PortFile(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: nothing to remove
};

}  // namespace tlm

#endif  // TLM_SERVER_PORT_FILE_H_
