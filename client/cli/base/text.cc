#include "client/cli/base/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "model/text/utf8.h"

namespace tlm::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{4} << 20;

// The first character of `text`: its code point (-1 if invalid) and its bytes (1 if invalid).
struct Character {
  utf8proc_int32_t code_point;
  size_t bytes;
};

Character FirstCharacter(std::string_view text) {
  if (NextUtf8(text).kind != Utf8Step::kCharacter) return {-1, 1};
  const Utf8Character character = tlm::FirstCharacter(text);
  return {static_cast<utf8proc_int32_t>(character.code_point), character.length};
}

bool IsControl(utf8proc_int32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

void AppendHex(std::string_view bytes, std::string* out) {
  for (const char c : bytes) *out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const std::string_view bytes = text.substr(0, character.bytes);
    const bool plain = character.code_point == '\n' || character.code_point == '\t';
    if (!plain && IsControl(character.code_point)) {
      AppendHex(bytes, &result);
    } else {
      result += bytes;
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::string Quoted(std::string_view bytes) {
  std::string result = "\"";
  while (!bytes.empty()) {
    const Character character = FirstCharacter(bytes);
    const std::string_view piece = bytes.substr(0, character.bytes);
    if (character.code_point == '\n') {
      result += "\\n";
    } else if (character.code_point == '\t') {
      result += "\\t";
    } else if (character.code_point == '"' || character.code_point == '\\') {
      result += '\\';
      result += piece;
    } else if (IsControl(character.code_point)) {
      AppendHex(piece, &result);
    } else {
      result += piece;
    }
    bytes.remove_prefix(character.bytes);
  }
  return result + '"';
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    width += character.code_point < 0
                 ? 1
                 : static_cast<size_t>(std::max(utf8proc_charwidth(character.code_point), 0));
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string Shortened(std::string_view text, size_t max_columns) {
  constexpr std::string_view kEllipsis = "...";
  if (DisplayWidth(text) <= max_columns) return std::string(text);
  std::string result;
  size_t columns = kEllipsis.size();
  while (true) {
    const std::string_view character = text.substr(0, FirstCharacter(text).bytes);
    columns += DisplayWidth(character);
    if (columns > max_columns) return result.append(kEllipsis);
    result += character;
    text.remove_prefix(character.size());
  }
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t offset = FindInvalidUtf8(text);
  if (offset == text.npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the text is not valid UTF-8: byte 0x{:02x} at offset {}",
                  static_cast<unsigned char>(text[offset]), offset));
}

absl::StatusOr<std::string> ReadText(const std::string& argument, std::istream* in) {
  std::string text = argument;
  if (argument == "-") {
    text.resize(kMaxTextBytes + 1);
    in->read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in->gcount()));
  }
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        fmt::format("the text is longer than {} bytes", kMaxTextBytes));
  }
  if (absl::Status status = CheckUtf8(text); !status.ok()) return status;
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
    return absl::NotFoundError(fmt::format("{}: cannot be read", path));
  }
  if (text.size() <= max_bytes) return text;
  return absl::InvalidArgumentError(fmt::format("{}: is longer than {} bytes", path, max_bytes));
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
    return absl::InvalidArgumentError(fmt::format("the line is longer than {} bytes", max_bytes));
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (absl::Status status = CheckUtf8(line); !status.ok()) return status;
  return std::optional<std::string>(std::move(line));
}

}  // namespace tlm::cli
