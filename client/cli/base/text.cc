#include "client/cli/base/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{4} << 20;

// Calls `take` with each character of `text`: its code point and its bytes; -1 and one byte where
// the text is invalid.
template <typename Take>
void ForEachCharacter(std::string_view text, Take take) {
  while (!text.empty()) {
    int32_t code_point = -1;
    size_t length = 1;
    if (NextUtf8(text).kind == Utf8Step::kCharacter) {
      const Utf8Character character = FirstCharacter(text);
      code_point = static_cast<int32_t>(character.code_point);
      length = character.length;
    }
    take(code_point, text.substr(0, length));
    text.remove_prefix(length);
  }
}

bool IsControl(int32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

void AppendHex(std::string_view bytes, std::string* out) {
  for (const char c : bytes) *out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string result;
  ForEachCharacter(text, [&result](int32_t code_point, std::string_view bytes) {
    if (IsControl(code_point) && code_point != '\n' && code_point != '\t') {
      AppendHex(bytes, &result);
    } else {
      result += bytes;
    }
  });
  return result;
}

std::string OneLine(std::string_view text) {
  std::string line = Printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::string Quoted(std::string_view bytes) {
  std::string result = "\"";
  ForEachCharacter(bytes, [&result](int32_t code_point, std::string_view piece) {
    if (code_point == '\n') {
      result += "\\n";
    } else if (code_point == '\t') {
      result += "\\t";
    } else if (IsControl(code_point)) {
      AppendHex(piece, &result);
    } else {
      if (code_point == '"' || code_point == '\\') result += '\\';
      result += piece;
    }
  });
  return result + '"';
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  ForEachCharacter(text, [&width](int32_t code_point, std::string_view) {
    width += code_point < 0 ? 1 : static_cast<size_t>(std::max(utf8proc_charwidth(code_point), 0));
  });
  return width;
}

std::string Shortened(std::string_view text, size_t max_columns) {
  constexpr std::string_view kEllipsis = "...";
  if (DisplayWidth(text) <= max_columns) return std::string(text);
  std::string result;
  size_t columns = kEllipsis.size();
  ForEachCharacter(text, [&](int32_t, std::string_view character) {
    columns += DisplayWidth(character);
    if (columns <= max_columns) result += character;
  });
  return result.append(kEllipsis);
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t offset = FindInvalidUtf8(text);
  if (offset == text.npos) return absl::OkStatus();
  return InvalidArgument("the text is not valid UTF-8: byte 0x{:02x} at offset {}",
                         static_cast<unsigned char>(text[offset]), offset);
}

absl::StatusOr<std::string> ReadText(const std::string& argument, std::istream* in) {
  std::string text = argument;
  if (argument == "-") {
    text.resize(kMaxTextBytes + 1);
    in->read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in->gcount()));
  }
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("the text is longer than {} bytes", kMaxTextBytes);
  }
  TLM_RETURN_IF_ERROR(CheckUtf8(text));
  return text;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  constexpr size_t kPiece = size_t{64} << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Reads one byte more than allowed: this shows that the text is too long without reading all of
  // it.
  while (file && text.size() <= max_bytes) {
    const size_t size = text.size();
    text.resize(size + std::min(kPiece, max_bytes + 1 - size));
    file.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
    text.resize(size + static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return NotFound("{}: cannot be read", path);
  }
  if (text.size() <= max_bytes) return text;
  return InvalidArgument("{}: is longer than {} bytes", path, max_bytes);
}

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
    return InvalidArgument("the line is longer than {} bytes", max_bytes);
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  TLM_RETURN_IF_ERROR(CheckUtf8(line));
  return std::optional<std::string>(std::move(line));
}

}  // namespace tlm::cli
