#include "tests/support/oracles.h"

#include <cstdlib>
#include <filesystem>

namespace tlm {

std::optional<std::string> OraclePath(std::string_view name) {
  std::filesystem::path directory;
  if (const char* const given = std::getenv("TLM_ORACLES"); given != nullptr) {
    directory = given;
  } else if (const char* const source = std::getenv("TLM_SOURCE_DIR"); source != nullptr) {
    directory = std::filesystem::path(source) / ".." / "shared" / "oracles";
  } else {
    return std::nullopt;
  }
  const std::filesystem::path path = directory / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

}  // namespace tlm
