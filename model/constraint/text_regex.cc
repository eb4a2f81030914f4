#include "model/constraint/text_regex.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "model/text/utf8.h"

namespace tlm {
namespace {

using Ranges = std::span<const CharSet::Range>;

// The letter of a two-character escape of JSON; 0 if the character has none.
char ShortEscape(char32_t character) {
  switch (character) {
    case '"':
    case '\\':
      return static_cast<char>(character);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

// The parts of the ranges between two characters.
std::vector<CharSet::Range> Clip(Ranges ranges, char32_t first, char32_t last) {
  std::vector<CharSet::Range> clipped;
  for (const CharSet::Range& range : ranges) {
    if (range.first > last || range.last < first) continue;
    clipped.push_back({std::max(range.first, first), std::min(range.last, last)});
  }
  return clipped;
}

// UTF-8 of characters of one length. `lead` is the part of the first byte that is the same for all,
// and `tails` the number of bytes behind it, of 6 bits each. `ranges` are sorted.
ByteRegex Utf8Regex(RegexSet& regexes, Ranges ranges, uint8_t lead, int tails) {
  const int shift = 6 * tails;
  const char32_t below = (char32_t{1} << shift) - 1;
  const auto byte_of = [&](char32_t c, char32_t mask) {
    return static_cast<uint8_t>(lead | (c >> shift & mask));
  };
  // Behind its lead the first byte holds what is left; a byte behind another holds 6 bits.
  const char32_t mask = lead == 0x80 ? 0x3f : 0xff;
  // The bytes that are followed by all, and the others with what follows them.
  ByteSet whole;
  std::map<uint8_t, std::vector<CharSet::Range>> partial;
  for (const CharSet::Range& range : ranges) {
    const char32_t first_block = range.first >> shift, last_block = range.last >> shift;
    for (char32_t block = first_block; block <= last_block; ++block) {
      const char32_t first = std::max<char32_t>(range.first, block << shift);
      const char32_t last = std::min<char32_t>(range.last, (block << shift) + below);
      const uint8_t byte = byte_of(first, mask);
      if (last - first == below) {
        whole.Add(byte);
      } else {
        partial[byte].push_back({first, last});
      }
    }
  }
  std::map<ByteRegex, ByteSet> by_tail;
  if (!whole.empty()) {
    const ByteRegex tail = regexes.Bytes(ByteSet::Range(0x80, 0xbf));
    by_tail[regexes.Repeat(tail, tails, tails)] = whole;
  }
  for (const auto& [byte, rest] : partial) {
    by_tail[Utf8Regex(regexes, rest, 0x80, tails - 1)].Add(byte);
  }
  std::vector<ByteRegex> parts;
  for (const auto& [tail, bytes] : by_tail) {
    parts.push_back(regexes.Concat(regexes.Bytes(bytes), tail));
  }
  return regexes.Or(parts);
}

// The characters of a set that JSON escapes.
ByteRegex EscapeRegex(RegexSet& regexes, const CharSet& set) {
  ByteSet letters;
  std::array<ByteSet, 2> digits;  // the last one of \u00xx, by the first of the two
  for (const char32_t c : {U'"', U'\\'}) {
    if (set.Has(c)) letters.Add(static_cast<uint8_t>(c));
  }
  for (char32_t c = 0; c < 0x20; ++c) {
    if (!set.Has(c)) continue;
    if (const char letter = ShortEscape(c); letter != 0) {
      letters.Add(static_cast<uint8_t>(letter));
    } else {
      digits[c >> 4].Add(static_cast<uint8_t>(kHexDigits[c & 15]));
    }
  }
  const ByteRegex longer =
      regexes.Or(regexes.Concat(regexes.Literal("u000"), regexes.Bytes(digits[0])),
                 regexes.Concat(regexes.Literal("u001"), regexes.Bytes(digits[1])));
  return regexes.Concat(regexes.Literal("\\"), regexes.Or(regexes.Bytes(letters), longer));
}

}  // namespace

std::string EncodeText(std::string_view utf8, TextForm form) {
  if (form == TextForm::kUtf8) return std::string(utf8);
  std::string text;
  for (const char c : utf8) {
    const auto byte = static_cast<uint8_t>(c);
    if (const char letter = ShortEscape(byte); letter != 0) {
      text += {'\\', letter};
    } else if (byte < 0x20) {
      text += "\\u00";
      text += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    } else {
      text += c;
    }
  }
  return text;
}

ByteRegex CharRegex(RegexSet& regexes, const CharSet& set, TextForm form) {
  std::vector<ByteRegex> parts;
  ByteSet ascii;
  for (const CharSet::Range& range : Clip(set.ranges(), 0, 0x7f)) {
    ascii =
        ascii | ByteSet::Range(static_cast<uint8_t>(range.first), static_cast<uint8_t>(range.last));
  }
  if (form == TextForm::kJson) {
    ByteSet escaped = ByteSet::Range(0, 0x1f);
    for (const char c : {'"', '\\'}) escaped.Add(static_cast<uint8_t>(c));
    if (!(ascii & escaped).empty()) parts.push_back(EscapeRegex(regexes, set));
    ascii = ascii & ~escaped;
  }
  parts.push_back(regexes.Bytes(ascii));
  parts.push_back(Utf8Regex(regexes, Clip(set.ranges(), 0x80, 0x7ff), 0xc0, 1));
  parts.push_back(Utf8Regex(regexes, Clip(set.ranges(), 0x800, 0xffff), 0xe0, 2));
  parts.push_back(Utf8Regex(regexes, Clip(set.ranges(), 0x10000, 0x10ffff), 0xf0, 3));
  return regexes.Or(parts);
}

ByteRegex AnyTextRegex(RegexSet& regexes, TextForm form) {
  return TextLengthRegex(regexes, 0, kNoMaxLength, form);
}

ByteRegex TextLengthRegex(RegexSet& regexes, int64_t min, int64_t max, TextForm form) {
  if (min > max || min >= RegexSet::kUnbounded) return RegexSet::kNone;
  return regexes.Repeat(CharRegex(regexes, CharSet::All(), form),
                        static_cast<int32_t>(std::max<int64_t>(min, 0)),
                        static_cast<int32_t>(std::min<int64_t>(max, RegexSet::kUnbounded)));
}

bool Matches(RegexSet& regexes, ByteRegex regex, std::string_view bytes) {
  for (const char byte : bytes) {
    if (regex == RegexSet::kNone) return false;
    regex = regexes.Derivative(regex, static_cast<uint8_t>(byte));
  }
  return regexes.HasEmpty(regex);
}

}  // namespace tlm
