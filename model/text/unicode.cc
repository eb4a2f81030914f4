#include "model/text/unicode.h"

#include <utf8proc.h>

namespace tlm {
namespace {

bool IsBetween(char32_t code_point, char32_t first, char32_t last) {
  return code_point >= first && code_point <= last;
}

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// Alphabetic characters of a category that is not: circled and squared Latin letters.
bool IsOtherAlphabeticSymbol(char32_t code_point) {
  return IsBetween(code_point, 0x24b6, 0x24e9) || IsBetween(code_point, 0x1f130, 0x1f149) ||
         IsBetween(code_point, 0x1f150, 0x1f169) || IsBetween(code_point, 0x1f170, 0x1f189);
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

}  // namespace tlm
