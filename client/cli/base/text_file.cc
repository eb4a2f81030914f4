#include "client/cli/base/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"

namespace tlm::cli {

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  constexpr size_t kPiece = size_t{64} << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // One byte more than may be there: that it is too long shows without reading it all.
  while (file && text.size() <= max_bytes) {
    const size_t size = text.size();
    text.resize(size + std::min(kPiece, max_bytes + 1 - size));
    file.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
    text.resize(size + static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(fmt::format("{}: cannot be read", path));
  }
  if (text.size() <= max_bytes) return text;
  return absl::InvalidArgumentError(fmt::format("{}: is longer than {} bytes", path, max_bytes));
}

}  // namespace tlm::cli
