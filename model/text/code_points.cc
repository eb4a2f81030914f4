#include "model/text/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tlm::jinja {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

using CodePointRange = std::pair<char32_t, char32_t>;

// Digits outside category Nd: property Numeric_Type=Digit.
constexpr std::array<CodePointRange, 20> kOtherDigits = {
    {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
     {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
     {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
     {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
     {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}}};

}  // namespace

bool IsValidUtf8(std::string_view text) {
  const auto* next = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length = utf8proc_iterate(next, left, &code_point);
    if (length <= 0) return false;
    next += length;
    left -= length;
  }
  return true;
}

size_t CountCodePoints(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

char32_t NextCodePoint(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) -> char32_t { return static_cast<unsigned char>(text[i]); };
  const size_t i = *position;
  const char32_t lead = byte(i);
  const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (i + length > text.size()) {  // cannot be in valid UTF-8
    *position = text.size();
    return 0xfffd;
  }
  *position = i + length;
  if (length == 1) return lead;
  char32_t code_point = lead & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) code_point = code_point << 6 | (byte(i + k) & 0x3fu);
  return code_point;
}

char32_t PreviousCodePoint(std::string_view text, size_t* position) {
  size_t start = *position - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  *position = start;
  size_t next = start;
  return NextCodePoint(text, &next);
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    ++offset;
    while (offset < text.size() && IsContinuation(text[offset])) ++offset;
    --index;
  }
  return offset;
}

void AppendCodePoint(char32_t code_point, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  // std::string_view::find takes the product of both lengths where a text repeats itself.
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return text.npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0x2028 || c == 0x2029 || Category(c) == UTF8PROC_CATEGORY_ZS;
}

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (Category(c)) {
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

bool IsAlpha(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsDecimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(char32_t c) {
  return IsDecimal(c) ||
         std::any_of(kOtherDigits.begin(), kOtherDigits.end(), [c](const CodePointRange& range) {
           return c >= range.first && c <= range.second;
         });
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return IsDecimal(c) || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace tlm::jinja
