#include "model/constraint/bytes/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "model/text/utf8.h"
#include "model/tokenizer/regex.h"

namespace tlm {
namespace {

constexpr char32_t kLastCharacter = 0x10ffff;
constexpr char32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

// Pairs of different characters with the same case folding, sorted.
std::vector<std::pair<char32_t, char32_t>> CasePairs() {
  constexpr int32_t kEnd = 0x1f000;  // above it no character has case
  std::map<int32_t, std::vector<char32_t>> by_fold;
  for (int32_t c = 0; c < kEnd; ++c) {
    if (c == 0x130 || c == 0x131) continue;  // the Turkish i characters fold to themselves
    const int32_t fold = utf8proc_tolower(utf8proc_toupper(c));
    if (fold != c) by_fold[fold].push_back(static_cast<char32_t>(c));
  }
  for (auto& [fold, characters] : by_fold) characters.push_back(static_cast<char32_t>(fold));
  std::vector<std::pair<char32_t, char32_t>> pairs;
  for (const auto& [fold, characters] : by_fold) {
    for (const char32_t a : characters) {
      for (const char32_t b : characters) {
        if (a != b) pairs.emplace_back(a, b);
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

// The long names of general categories, which PCRE2 does not know.
constexpr std::array<std::pair<std::string_view, std::string_view>, 40> kCategories = {{
    {"Cased_Letter", "L&"},
    {"Close_Punctuation", "Pe"},
    {"Connector_Punctuation", "Pc"},
    {"Control", "Cc"},
    {"Currency_Symbol", "Sc"},
    {"Dash_Punctuation", "Pd"},
    {"Decimal_Number", "Nd"},
    {"Enclosing_Mark", "Me"},
    {"Final_Punctuation", "Pf"},
    {"Format", "Cf"},
    {"Initial_Punctuation", "Pi"},
    {"LC", "L&"},
    {"Letter", "L"},
    {"Letter_Number", "Nl"},
    {"Line_Separator", "Zl"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Math_Symbol", "Sm"},
    {"Modifier_Letter", "Lm"},
    {"Modifier_Symbol", "Sk"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Open_Punctuation", "Ps"},
    {"Other", "C"},
    {"Other_Letter", "Lo"},
    {"Other_Number", "No"},
    {"Other_Punctuation", "Po"},
    {"Other_Symbol", "So"},
    {"Paragraph_Separator", "Zp"},
    {"Private_Use", "Co"},
    {"Punctuation", "P"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Spacing_Mark", "Mc"},
    {"Symbol", "S"},
    {"Titlecase_Letter", "Lt"},
    {"Unassigned", "Cn"},
    {"Uppercase_Letter", "Lu"},
    {"digit", "Nd"},
}};

// The name as PCRE2 writes it; empty if it cannot be a name.
std::string Pcre2Name(std::string_view name) {
  for (const std::string_view prefix :
       {"General_Category=", "gc=", "Script=", "sc=", "Script_Extensions=", "scx="}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (prefix.starts_with("Script=") || prefix == "sc=") return "sc:" + std::string(name);
    if (prefix.starts_with("Script_") || prefix == "scx=") return "scx:" + std::string(name);
    break;
  }
  for (const auto& [long_name, short_name] : kCategories) {
    if (name == long_name) return std::string(short_name);
  }
  return std::string(name);
}

// Searches a text of all characters in order with PCRE2. The matches are the ranges.
std::optional<CharSet> SearchAllCharacters(const std::string& pcre2_name) {
  const absl::StatusOr<Regex> regex = Regex::Compile("\\p{" + pcre2_name + "}+");
  if (!regex.ok()) return std::nullopt;
  std::string text;
  for (const CharSet::Range& range : CharSet::All().ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) AppendUtf8(c, &text);
  }
  std::vector<CharSet::Range> ranges;
  RegexMatcher matcher(*regex);
  const absl::Status status =
      matcher.ForEachSegment(text, [&](std::string_view segment, bool is_match) {
        if (is_match && !segment.empty()) {
          ranges.push_back({FirstCharacter(segment).code_point, LastCharacter(segment).code_point});
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return std::nullopt;
  return CharSet(std::move(ranges));
}

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
const ByteSet kHexBytes =
    ByteSet::Range('0', '9') | ByteSet::Range('a', 'f') | ByteSet::Range('A', 'F');

// The parts of the ranges between two characters.
std::vector<CharSet::Range> Clip(Ranges ranges, char32_t first, char32_t last) {
  std::vector<CharSet::Range> clipped;
  for (const CharSet::Range& range : ranges) {
    if (range.first > last || range.last < first) continue;
    clipped.push_back({std::max(range.first, first), std::min(range.last, last)});
  }
  return clipped;
}

// The UTF-8 of characters that have the same length. `lead` is the common part of the first byte,
// and `tails` is the number of bytes after it, of 6 bits each. `ranges` are sorted.
ByteRegex Utf8Regex(RegexSet& regexes, Ranges ranges, uint8_t lead, int tails) {
  const int shift = 6 * tails;
  const char32_t below = (char32_t{1} << shift) - 1;
  const auto byte_of = [&](char32_t c, char32_t mask) {
    return static_cast<uint8_t>(lead | (c >> shift & mask));
  };
  // The first byte holds the bits that remain after its lead; every later byte holds 6 bits.
  const char32_t mask = lead == 0x80 ? 0x3f : 0xff;
  // `whole`: the bytes that every tail may follow. `partial`: for other bytes, the ranges that may
  // follow.
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
  std::array<ByteSet, 2> digits;  // last digit of \u00xx, by the third digit
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

// Numbers written with `digits` hexadecimal digits, capital or small. `ranges` are sorted; their
// numbers have at most that many digits.
ByteRegex HexRegex(RegexSet& regexes, Ranges ranges, int digits) {
  if (digits == 0) return RegexSet::kEmpty;
  const int shift = 4 * (digits - 1);
  const char32_t below = (char32_t{1} << shift) - 1;
  std::map<ByteRegex, ByteSet> by_tail;
  for (char32_t digit = 0; digit < 16; ++digit) {
    const char32_t first = digit << shift, last = first + below;
    std::vector<CharSet::Range> tails = Clip(ranges, first, last);
    if (tails.empty()) continue;
    const bool whole = tails[0].first == first && tails[0].last == last;
    for (CharSet::Range& range : tails) range = {range.first & below, range.last & below};
    const ByteRegex tail = whole ? regexes.Repeat(regexes.Bytes(kHexBytes), digits - 1, digits - 1)
                                 : HexRegex(regexes, tails, digits - 1);
    const char small = kHexDigits[digit];
    by_tail[tail].Add(static_cast<uint8_t>(small));
    if (small >= 'a') by_tail[tail].Add(static_cast<uint8_t>(small - 'a' + 'A'));
  }
  std::vector<ByteRegex> parts;
  for (const auto& [tail, bytes] : by_tail) {
    parts.push_back(regexes.Concat(regexes.Bytes(bytes), tail));
  }
  return regexes.Or(parts);
}

constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t", kEscapes = "\"\\/bfnrt";

// All escapes of the characters of a set: of two characters, of six, and pairs of surrogates.
ByteRegex AnyEscapeRegex(RegexSet& regexes, const CharSet& set) {
  ByteSet letters;
  for (size_t i = 0; i < kEscaped.size(); ++i) {
    if (set.Has(static_cast<uint8_t>(kEscaped[i]))) letters.Add(static_cast<uint8_t>(kEscapes[i]));
  }
  std::vector<ByteRegex> numbers = {HexRegex(regexes, Clip(set.ranges(), 0, 0xffff), 4)};
  // Ranges of first surrogates by the expression of the second surrogates that may follow.
  std::map<ByteRegex, std::vector<CharSet::Range>> firsts;
  std::map<char32_t, std::vector<CharSet::Range>> partial;
  const auto add = [&](char32_t from, char32_t to, const std::vector<CharSet::Range>& seconds) {
    firsts[HexRegex(regexes, seconds, 4)].push_back({0xd800 + from, 0xd800 + to});
  };
  for (const CharSet::Range& range : Clip(set.ranges(), 0x10000, kLastCharacter)) {
    constexpr char32_t kLow = 0x3ff;  // payload bits of a second surrogate
    const char32_t begin = range.first - 0x10000, end = range.last - 0x10000;
    char32_t from = begin >> 10, to = end >> 10;
    if (from == to || (begin & kLow) != 0) {
      const char32_t last = from == to ? end & kLow : kLow;
      partial[from++].push_back({0xdc00 + (begin & kLow), 0xdc00 + last});
      if (from > to) continue;
    }
    if ((end & kLow) != kLow) partial[to--].push_back({0xdc00, 0xdc00 + (end & kLow)});
    if (from <= to) add(from, to, {{0xdc00, 0xdfff}});
  }
  for (const auto& [first, seconds] : partial) add(first, first, seconds);
  for (auto& [second, ranges] : firsts) {
    std::sort(ranges.begin(), ranges.end());
    numbers.push_back(
        regexes.Concat(std::array{HexRegex(regexes, ranges, 4), regexes.Literal("\\u"), second}));
  }
  return regexes.Concat(regexes.Literal("\\"),
                        regexes.Or(regexes.Bytes(letters),
                                   regexes.Concat(regexes.Literal("u"), regexes.Or(numbers))));
}

// The number of four hexadecimal digits at `at`.
std::optional<char32_t> HexAt(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  if (error != std::errc() || end != text.data() + at + 4) return std::nullopt;
  return char32_t{value};
}

// Reads the escape at *at and moves *at past it; nullopt if there is no escape.
std::optional<char32_t> ReadEscape(std::string_view text, size_t* at) {
  if (*at + 1 >= text.size() || text[*at] != '\\') return std::nullopt;
  if (const size_t letter = kEscapes.find(text[*at + 1]); letter != kEscapes.npos) {
    *at += 2;
    return static_cast<uint8_t>(kEscaped[letter]);
  }
  const auto first = text[*at + 1] == 'u' ? HexAt(text, *at + 2) : std::nullopt;
  if (!first.has_value()) return std::nullopt;
  if (*first < kFirstSurrogate || *first > kLastSurrogate) {
    *at += 6;
    return first;
  }
  const auto second = text.substr(*at + 6, 2) == "\\u" ? HexAt(text, *at + 8) : std::nullopt;
  if (*first >= 0xdc00 || !second.has_value() || *second < 0xdc00 || *second > kLastSurrogate) {
    return std::nullopt;
  }
  *at += 12;
  return 0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00);
}

}  // namespace

CharSet::CharSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  const auto add = [this](char32_t first, char32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    const char32_t last = std::min(range.last, kLastCharacter);
    add(range.first, std::min<char32_t>(last, kFirstSurrogate - 1));
    add(std::max<char32_t>(range.first, kLastSurrogate + 1), last);
  }
}

const CharSet& CharSet::All() {
  static const CharSet* const kAll = new CharSet({{0, kLastCharacter}});
  return *kAll;
}

bool CharSet::Has(char32_t character) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), character,
                       [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges_.begin() && character <= std::prev(after)->last;
}

CharSet operator|(const CharSet& a, const CharSet& b) {
  std::vector<CharSet::Range> ranges = a.ranges_;
  ranges.insert(ranges.end(), b.ranges_.begin(), b.ranges_.end());
  return CharSet(std::move(ranges));
}

CharSet operator~(const CharSet& set) {
  std::vector<CharSet::Range> ranges;
  char32_t next = 0;
  for (const CharSet::Range& range : set.ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) ranges.push_back({next, kLastCharacter});
  return CharSet(std::move(ranges));
}

CharSet operator&(const CharSet& a, const CharSet& b) { return ~(~a | ~b); }

CharSet WithOtherCases(const CharSet& set) {
  static const auto* const kPairs = new std::vector<std::pair<char32_t, char32_t>>(CasePairs());
  std::vector<CharSet::Range> ranges = set.ranges();
  for (const CharSet::Range& range : set.ranges()) {
    auto pair =
        std::lower_bound(kPairs->begin(), kPairs->end(), std::pair(range.first, char32_t{0}));
    for (; pair != kPairs->end() && pair->first <= range.last; ++pair) {
      ranges.push_back({pair->second, pair->second});
    }
  }
  return CharSet(std::move(ranges));
}

std::optional<CharSet> CharsOfProperty(std::string_view name) {
  constexpr size_t kMaxNameBytes = 64, kMaxKept = 256;
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '=';
  });
  if (name.empty() || name.size() > kMaxNameBytes || !is_name) return std::nullopt;
  const std::string pcre2_name = Pcre2Name(name);
  static Mutex* const mutex = new Mutex;
  static auto* const kept = new std::map<std::string, std::optional<CharSet>>;
  {
    const MutexLock lock(mutex);
    if (const auto found = kept->find(pcre2_name); found != kept->end()) return found->second;
  }
  std::optional<CharSet> set = SearchAllCharacters(pcre2_name);
  const MutexLock lock(mutex);
  if (set.has_value() && kept->size() < kMaxKept) kept->emplace(pcre2_name, set);
  return set;
}

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

std::string WithFewestEscapes(std::string_view json) {
  std::string text;
  for (size_t at = 0; at < json.size();) {
    if (const auto character = ReadEscape(json, &at)) {
      std::string utf8;
      AppendUtf8(*character, &utf8);
      text += EncodeText(utf8, TextForm::kJson);
    } else {
      text += json[at++];
    }
  }
  return text;
}

ByteRegex JsonTextRegex(RegexSet& regexes, std::string_view json, TextForm form) {
  if (form == TextForm::kJson) return regexes.Literal(json);
  std::vector<ByteRegex> characters;
  for (size_t at = 0; at < json.size();) {
    std::optional<char32_t> character = ReadEscape(json, &at);
    if (!character.has_value()) {
      const Utf8Character plain = FirstCharacter(json.substr(at));
      character = plain.code_point;
      at += plain.length;
    }
    characters.push_back(CharRegex(regexes, CharSet::Of(*character), form));
  }
  return regexes.Concat(characters);
}

ByteRegex CharRegex(RegexSet& regexes, const CharSet& set, TextForm form) {
  std::vector<ByteRegex> parts;
  ByteSet ascii;
  for (const CharSet::Range& range : Clip(set.ranges(), 0, 0x7f)) {
    ascii =
        ascii | ByteSet::Range(static_cast<uint8_t>(range.first), static_cast<uint8_t>(range.last));
  }
  if (form != TextForm::kUtf8) {
    ByteSet escaped = ByteSet::Range(0, 0x1f);
    for (const char c : {'"', '\\'}) escaped.Add(static_cast<uint8_t>(c));
    if (form == TextForm::kJsonAny) {
      parts.push_back(AnyEscapeRegex(regexes, set));
    } else if (!(ascii & escaped).empty()) {
      parts.push_back(EscapeRegex(regexes, set));
    }
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
