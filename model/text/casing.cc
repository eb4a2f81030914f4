#include "model/text/casing.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr char32_t kSmallSharpS = 0xdf;
constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kSmallSigma = 0x3c3;
constexpr char32_t kFinalSigma = 0x3c2;

using CodePointRange = std::pair<char32_t, char32_t>;

// Properties Other_Lowercase and Other_Uppercase: what is cased without being of category Ll or Lu.
constexpr std::array<CodePointRange, 24> kOtherLowercase = {
    {{0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
     {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
     {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
     {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},
     {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
     {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}}};
constexpr std::array<CodePointRange, 5> kOtherUppercase = {{{0x2160, 0x216f},
                                                            {0x24b6, 0x24cf},
                                                            {0x1f130, 0x1f149},
                                                            {0x1f150, 0x1f169},
                                                            {0x1f170, 0x1f189}}};

template <size_t size>
bool IsIn(const std::array<CodePointRange, size>& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [c](const CodePointRange& range) {
    return c >= range.first && c <= range.second;
  });
}

utf8proc_category_t GeneralCategory(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Properties Uppercase and Lowercase; category Lt counts as neither.
bool IsUpper(char32_t c) {
  return GeneralCategory(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUppercase, c);
}
bool IsLower(char32_t c) {
  return GeneralCategory(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLowercase, c);
}
bool IsTitle(char32_t c) { return c >= 0x80 && GeneralCategory(c) == UTF8PROC_CATEGORY_LT; }

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Property Case_Ignorable: what stands within a word without being its letter.
bool IsCaseIgnorable(char32_t c) {
  constexpr std::u32string_view kPunctuation =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  if (kPunctuation.find(c) != kPunctuation.npos) return true;
  switch (GeneralCategory(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// Whether the sigma of bytes [start, end) ends its word: a cased letter before it, none behind.
bool EndsWord(std::string_view text, size_t start, size_t end) {
  char32_t c = 0;
  do {
    if (start == 0) return false;
    c = PreviousCodePoint(text, &start);
  } while (IsCaseIgnorable(c));
  if (!IsCased(c)) return false;
  do {
    if (end == text.size()) return true;
    c = NextCodePoint(text, &end);
  } while (IsCaseIgnorable(c));
  return !IsCased(c);
}

enum class Case { kUpper, kLower, kTitle };

char32_t SimpleMapping(utf8proc_int32_t c, Case to) {
  return static_cast<char32_t>(to == Case::kUpper ? utf8proc_toupper(c) : utf8proc_totitle(c));
}

// Letters that become several (SpecialCasing.txt): those of their case folding, mapped one by one.
// In title case only the first of them is mapped, and where one code point will do, it is preferred
// (but for the sharp s).
void AppendMapped(char32_t c, Case to, std::string* out) {
  if (to == Case::kLower) return AppendLowercase(c, out);
  constexpr size_t kMaxFolded = 3;
  const auto letter = static_cast<utf8proc_int32_t>(c);
  const char32_t simple = SimpleMapping(letter, to);
  utf8proc_int32_t folded[kMaxFolded];
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(letter, folded, kMaxFolded, UTF8PROC_CASEFOLD, &boundary);
  const bool is_own_title =
      to == Case::kTitle && (IsTitle(c) || (simple != c && c != kSmallSharpS));
  if (count <= 1 || is_own_title || IsUpper(c)) return AppendUtf8(simple, out);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const bool stays = to == Case::kTitle && i > 0;
    AppendUtf8(stays ? static_cast<char32_t>(folded[i]) : SimpleMapping(folded[i], to), out);
  }
}

// `choose(c, first)`: the case of letter c.
template <typename Choose>
std::string Map(std::string_view text, Choose choose) {
  std::string result;
  result.reserve(text.size());
  for (size_t next = 0; next < text.size();) {
    const size_t start = next;
    const char32_t c = NextCodePoint(text, &next);
    const Case to = choose(c);
    if (c == kCapitalSigma && to == Case::kLower) {
      AppendUtf8(EndsWord(text, start, next) ? kFinalSigma : kSmallSigma, &result);
    } else {
      AppendMapped(c, to, &result);
    }
  }
  return result;
}

}  // namespace

void AppendLowercase(char32_t code_point, std::string* text) {
  // The one character whose mapping is more than one (SpecialCasing.txt).
  if (code_point == 0x130) {
    *text += "i\u0307";
    return;
  }
  const utf8proc_int32_t lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point));
  AppendUtf8(static_cast<char32_t>(lower), text);
}

std::string ToUpper(std::string_view text) {
  return Map(text, [](char32_t) { return Case::kUpper; });
}

std::string ToLower(std::string_view text) {
  return Map(text, [](char32_t) { return Case::kLower; });
}

std::string ToCapitalized(std::string_view text) {
  bool first = true;
  return Map(text,
             [&](char32_t) { return std::exchange(first, false) ? Case::kTitle : Case::kLower; });
}

std::string ToTitle(std::string_view text) {
  bool within_word = false;
  return Map(text, [&](char32_t c) {
    return std::exchange(within_word, IsCased(c)) ? Case::kLower : Case::kTitle;
  });
}

}  // namespace tlm
