#include <fmt/format.h>

#include <string>
#include <string_view>

#include "model/base/errors.h"
#include "model/jinja/lexer.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

int DigitOf(char c, int base) {
  const char lower = static_cast<char>(c | 0x20);
  const int digit = c >= '0' && c <= '9'           ? c - '0'
                    : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                   : 99;
  return digit < base ? digit : -1;
}

absl::Status AppendChecked(uint32_t value, std::string* out) {
  if (value > 0x10ffff) return InvalidArgument("illegal Unicode character in a text");
  if (value >= 0xd800 && value < 0xe000) {
    return Unimplemented("a surrogate (\\u{:04x}) in a text is not supported", value);
  }
  AppendUtf8(static_cast<char32_t>(value), out);
  return absl::OkStatus();
}

// \ooo, from its first digit at `*next`: up to three digits.
absl::Status TakeOctal(std::string_view text, size_t* next, std::string* out) {
  uint32_t value = 0;
  for (int i = 0; i < 3 && *next < text.size() && DigitOf(text[*next], 8) >= 0; ++i, ++*next) {
    value = value * 8 + static_cast<uint32_t>(DigitOf(text[*next], 8));
  }
  return AppendChecked(value, out);
}

// \xhh, \uhhhh or \Uhhhhhhhh, from behind its letter.
absl::Status TakeHex(std::string_view text, char letter, size_t* next, std::string* out) {
  const int digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++*next) {
    const int digit = *next < text.size() ? DigitOf(text[*next], 16) : -1;
    if (digit < 0) return InvalidArgument("truncated \\{} escape in a text", letter);
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return AppendChecked(value, out);
}

}  // namespace

absl::StatusOr<std::string> Unescape(std::string_view literal) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string result;
  for (size_t next = 0; next < literal.size();) {
    const char c = literal[next++];
    if (c != '\\' || next == literal.size()) {
      result += c;
      continue;
    }
    const char letter = literal[next];
    const size_t i = kLetters.find(letter);
    if (i != kLetters.npos) {
      result += kMeanings[i];
      ++next;
    } else if (letter == '\n') {
      ++next;
    } else if (DigitOf(letter, 8) >= 0) {
      TLM_RETURN_IF_ERROR(TakeOctal(literal, &next, &result));
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      ++next;
      TLM_RETURN_IF_ERROR(TakeHex(literal, letter, &next, &result));
    } else if (letter == 'N') {
      return Unimplemented("\\N in a text is not supported");
    } else if (static_cast<unsigned char>(letter) >= 0x80) {
      // Jinja writes such characters as escapes first, and the backslash then guards theirs.
      const auto value = static_cast<uint32_t>(NextCodePoint(literal, &next));
      result += value < 0x100     ? fmt::format("\\x{:02x}", value)
                : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                                  : fmt::format("\\U{:08x}", value);
    } else {
      result += '\\';
    }
  }
  return result;
}

}  // namespace tlm::jinja
