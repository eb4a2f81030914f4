#include "server/port_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

absl::Status CannotWrite(const std::string& path) {
  return FailedPrecondition("cannot write --port_file {}: {}", path, std::strerror(errno));
}

}  // namespace

absl::StatusOr<PortFile> PortFile::Create(const std::string& path, int port) {
  if (path.empty()) return PortFile("");
  const std::string draft = fmt::format("{}.{}", path, getpid());
  {
    std::ofstream file(draft, std::ios::trunc);
    file << port << '\n';
    file.flush();
    if (!file) return CannotWrite(draft);
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    const absl::Status status = CannotWrite(path);
    std::remove(draft.c_str());
    return status;
  }
  return PortFile(path);
}

PortFile::PortFile(PortFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}

PortFile::~PortFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace tlm
