#include "model/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "model/text/utf8.h"

namespace tlm {
namespace {

bool IsBetween(char32_t code_point, char32_t first, char32_t last) {
  return code_point >= first && code_point <= last;
}

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// True for alphabetic characters whose category is not: circled and squared Latin letters.
bool IsOtherAlphabeticSymbol(char32_t code_point) {
  return IsBetween(code_point, 0x24b6, 0x24e9) || IsBetween(code_point, 0x1f130, 0x1f149) ||
         IsBetween(code_point, 0x1f150, 0x1f169) || IsBetween(code_point, 0x1f170, 0x1f189);
}

constexpr char32_t kSmallSharpS = 0xdf;
constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kSmallSigma = 0x3c3;
constexpr char32_t kFinalSigma = 0x3c2;

using CodePointRange = std::pair<char32_t, char32_t>;

// Properties Other_Lowercase and Other_Uppercase: cased characters that are not of category Ll or
// Lu.
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

// Test the properties Uppercase and Lowercase; category Lt counts as neither.
bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUppercase, c); }
bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLowercase, c); }
bool IsTitle(char32_t c) { return c >= 0x80 && Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Property Case_Ignorable: characters inside a word that are not its letters.
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

// True if the sigma of bytes [start, end) ends its word: a cased letter precedes it and none
// follows.
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

// Appends letters that become several (SpecialCasing.txt): the letters of their case folding,
// mapped one by one. In title case only the first is mapped. A mapping to one code point is
// preferred (but for the sharp s).
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

// `choose(c, first)` returns the case of letter c.
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

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Decomposes characters one by one; their marks are not in order yet.
std::vector<utf8proc_int32_t> Decompose(std::string_view text, bool compatibility) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  // No full decomposition has more than 18 characters (Unicode Standard Annex 15, section 14).
  constexpr size_t kMaxExpansion = 32;
  std::vector<utf8proc_int32_t> result;
  result.reserve(text.size());
  utf8proc_int32_t expansion[kMaxExpansion];
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    text.remove_prefix(character.length);
    const utf8proc_ssize_t length =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point), expansion,
                                kMaxExpansion, options, &boundary_class);
    result.insert(result.end(), expansion, expansion + length);
  }
  return result;
}

// Puts marks in canonical order: sorts each run of non-starters by combining class. utf8proc's own
// ordering swaps neighbours, which takes a time quadratic in the length of a run.
void OrderMarks(std::vector<utf8proc_int32_t>* text) {
  const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  auto run = text->begin();
  while (true) {
    run = std::find_if_not(run, text->end(), is_starter);
    if (run == text->end()) return;
    const auto run_end = std::find_if(run, text->end(), is_starter);
    std::stable_sort(run, run_end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    run = run_end;
  }
}

bool IsComposed(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

bool IsCompatibility(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

}  // namespace

bool IsWhiteSpace(char32_t code_point) {
  switch (code_point) {
    case 0x20:
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000:
      return true;
    default:
      return IsBetween(code_point, 0x09, 0x0d) || IsBetween(code_point, 0x2000, 0x200a);
  }
}

bool IsWordCharacter(char32_t code_point) {
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return IsBetween(code_point, 0x200c, 0x200d) || IsOtherAlphabeticSymbol(code_point);
  }
}

bool IsMark(char32_t code_point) {
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return true;
    default:
      return false;
  }
}

bool IsSpace(char32_t code_point) {
  return IsWhiteSpace(code_point) || IsBetween(code_point, 0x1c, 0x1f);
}

bool IsPrintable(char32_t code_point) {
  if (code_point < 0x80) return code_point >= 0x20 && code_point < 0x7f;
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsLineBreak(char32_t code_point) {
  return IsBetween(code_point, 0x0a, 0x0d) || IsBetween(code_point, 0x1c, 0x1e) ||
         code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029;
}

void AppendLowercase(char32_t code_point, std::string* text) {
  // This is the only character whose mapping has several (SpecialCasing.txt).
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

// Every character below U+0300 is a starter that NFC leaves unchanged, and bytes up to 0xCB begin
// only these characters. The other forms leave ASCII unchanged.
bool IsPlainlyNormal(std::string_view text, NormalForm form) {
  const unsigned char end = form == NormalForm::kNfc ? 0xcc : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [end](char c) { return static_cast<unsigned char>(c) < end; });
}

std::string ToNormalForm(std::string_view text, NormalForm form) {
  if (IsPlainlyNormal(text, form)) return std::string(text);
  std::vector<utf8proc_int32_t> characters = Decompose(text, IsCompatibility(form));
  OrderMarks(&characters);
  auto length = static_cast<utf8proc_ssize_t>(characters.size());
  if (IsComposed(form)) {
    length = utf8proc_normalize_utf32(
        characters.data(), length,
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(characters[i]), &result);
  }
  return result;
}

}  // namespace tlm
