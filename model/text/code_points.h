// UTF-8 text as the sequence of code points that Python's str is, and the classes of characters
// that Python's str methods tell apart. All functions take valid UTF-8 (see IsValidUtf8).
#ifndef TLM_MODEL_TEXT_CODE_POINTS_H_
#define TLM_MODEL_TEXT_CODE_POINTS_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tlm::jinja {

// Without surrogates, overlong forms and values above U+10FFFF.
bool IsValidUtf8(std::string_view text);

size_t CountCodePoints(std::string_view text);

// The code point that starts at byte `*position`, which moves behind it.
char32_t NextCodePoint(std::string_view text, size_t* position);

// The code point that ends before byte `*position`, which moves to its start.
char32_t PreviousCodePoint(std::string_view text, size_t* position);

// Where code point number `index` starts, or the length in bytes when there are fewer.
size_t ByteOffset(std::string_view text, size_t index);

void AppendCodePoint(char32_t code_point, std::string* text);

bool IsSpace(char32_t code_point);      // str.isspace
bool IsPrintable(char32_t code_point);  // str.isprintable
bool IsAlpha(char32_t code_point);      // str.isalpha
bool IsDecimal(char32_t code_point);    // str.isdecimal
bool IsDigit(char32_t code_point);      // str.isdigit
bool IsNumeric(char32_t code_point);    // category N*; str.isnumeric but for numeric ideographs
bool IsLineBreak(char32_t code_point);  // where str.splitlines splits

// text.find(part, from), in time that grows with the length of the text alone.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);

// `text` without the leading and trailing characters that `strips` is true for.
template <typename Predicate>
std::string_view StripLeft(std::string_view text, Predicate strips) {
  size_t start = 0;
  for (size_t next = 0; start < text.size(); start = next) {
    if (!strips(NextCodePoint(text, &next))) break;
  }
  return text.substr(start);
}
template <typename Predicate>
std::string_view StripRight(std::string_view text, Predicate strips) {
  size_t end = text.size();
  for (size_t previous = end; end > 0; end = previous) {
    if (!strips(PreviousCodePoint(text, &previous))) break;
  }
  return text.substr(0, end);
}

}  // namespace tlm::jinja

#endif  // TLM_MODEL_TEXT_CODE_POINTS_H_
