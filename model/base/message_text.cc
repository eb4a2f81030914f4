#include "model/base/message_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace tlm {

std::string OneLine(std::string_view text) {
  using nlohmann::json;
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  const auto byte_at = [](std::string_view in, size_t i) {
    return i < in.size() ? static_cast<unsigned char>(in[i]) : 0u;
  };
  const std::string repaired =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
  std::string line;
  for (size_t i = 0; i < repaired.size(); ++i) {
    const unsigned byte = byte_at(repaired, i);
    const bool is_c1 = byte == 0xc2 && byte_at(repaired, i + 1) < 0xa0;  // U+0080 to U+009F
    line += byte < 0x20 || byte == 0x7f || is_c1 ? '?' : repaired[i];
    if (is_c1) ++i;
  }
  return line;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 100;
  constexpr size_t kMaxCharacter = 4;
  size_t length = std::min(text.size(), kMaxBytes);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; };
  while (length > kMaxBytes - kMaxCharacter && length < text.size() && continues(text[length])) {
    --length;
  }
  return "'" + OneLine(text.substr(0, length)) + (length < text.size() ? "...'" : "'");
}

std::string HumanBytes(uint64_t bytes) {
  constexpr double kStep = 1024;
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / kStep;
  const std::string_view* unit = std::begin(kUnits);
  // The text has two decimals: 1023.996 would be "1024.00".
  while (value >= kStep - 0.005 && unit + 1 != std::end(kUnits)) {
    value /= kStep;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, *unit);
}

std::string LineAndColumn(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - line_start + 1);
}

}  // namespace tlm
