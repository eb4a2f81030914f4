// Character classes, case and normalisation forms of Unicode.
#ifndef TLM_MODEL_TEXT_UNICODE_H_
#define TLM_MODEL_TEXT_UNICODE_H_

#include <string>
#include <string_view>

namespace tlm {

// The property White_Space: \s.
bool IsWhiteSpace(char32_t code_point);

// \w as Unicode Technical Standard 18, annex C, defines it: Alphabetic, Mark, Decimal_Number,
// Connector_Punctuation and Join_Control.
bool IsWordCharacter(char32_t code_point);

// The category Mark: Mn, Mc and Me.
bool IsMark(char32_t code_point);

// As the methods of Python's str class code points.
bool IsSpace(char32_t code_point);      // isspace: White_Space and U+001C to U+001F
bool IsPrintable(char32_t code_point);  // isprintable
bool IsLineBreak(char32_t code_point);  // where splitlines splits

// Appends Lowercase_Mapping as UTF-8, whatever stands beside the letter.
void AppendLowercase(char32_t code_point, std::string* text);

// As Python's str has them: with the mappings of one letter to several, and the final sigma.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToCapitalized(std::string_view text);  // str.capitalize
std::string ToTitle(std::string_view text);        // str.title: a word starts behind any non-letter

// Unicode Standard Annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Whether this is so without a look at any table; false says nothing.
bool IsPlainlyNormal(std::string_view text, NormalForm form);

// Well-formed UTF-8 in and out, in a time that grows as n log n however combining marks are
// ordered. The result has at most 11 times the bytes (NFKC of U+FDFA).
std::string ToNormalForm(std::string_view text, NormalForm form);

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UNICODE_H_
