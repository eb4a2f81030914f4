#include "client/cli/base/line_reader.h"

#include <fmt/format.h>

#include "client/cli/base/text.h"

namespace tlm::cli {

absl::StatusOr<std::optional<std::string>> ReadLine(std::istream* in, size_t max_bytes) {
  std::string line;
  bool too_long = false;
  bool ended = false;
  char c;
  while (!ended && in->get(c)) {
    ended = c == '\n';
    if (ended) break;
    too_long = too_long || line.size() == max_bytes;
    if (!too_long) line += c;
  }
  if (!ended && line.empty()) return std::optional<std::string>();
  if (too_long) {
    return absl::InvalidArgumentError(fmt::format("the line is longer than {} bytes", max_bytes));
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (absl::Status status = CheckUtf8(line); !status.ok()) return status;
  return std::optional<std::string>(std::move(line));
}

}  // namespace tlm::cli
