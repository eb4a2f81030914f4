#include "model/text/casing.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "model/text/code_points.h"
#include "model/text/special_casing.h"

namespace tlm::jinja {
namespace {

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

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Property Case_Ignorable: what stands within a word without being its letter.
bool IsCaseIgnorable(char32_t c) {
  constexpr std::u32string_view kPunctuation =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  if (kPunctuation.find(c) != kPunctuation.npos) return true;
  switch (Category(c)) {
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

char32_t SimpleMapping(char32_t c, Case to) {
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  switch (to) {
    case Case::kUpper:
      return static_cast<char32_t>(utf8proc_toupper(code_point));
    case Case::kLower:
      return static_cast<char32_t>(utf8proc_tolower(code_point));
    default:
      return static_cast<char32_t>(utf8proc_totitle(code_point));
  }
}

void AppendMapped(char32_t c, Case to, std::string* out) {
  if (c < 0x80) {
    const bool changes = to == Case::kLower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
    *out += static_cast<char>(changes ? c ^ 0x20u : c);
    return;
  }
  const auto special = std::lower_bound(
      kSpecialCasing.begin(), kSpecialCasing.end(), c,
      [](const SpecialCasing& row, char32_t letter) { return row.letter < letter; });
  if (special == kSpecialCasing.end() || special->letter != c) {
    AppendCodePoint(SimpleMapping(c, to), out);
    return;
  }
  const std::u32string_view mapped = to == Case::kUpper   ? special->upper
                                     : to == Case::kLower ? special->lower
                                                          : special->title;
  for (const char32_t part : mapped) AppendCodePoint(part, out);
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
      AppendCodePoint(EndsWord(text, start, next) ? kFinalSigma : kSmallSigma, &result);
    } else {
      AppendMapped(c, to, &result);
    }
  }
  return result;
}

}  // namespace

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

bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUppercase, c); }

bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLowercase, c); }

bool IsTitle(char32_t c) { return c >= 0x80 && Category(c) == UTF8PROC_CATEGORY_LT; }

}  // namespace tlm::jinja
