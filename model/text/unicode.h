// Character classes, case and normalisation forms of Unicode.
#ifndef TLM_MODEL_TEXT_UNICODE_H_
#define TLM_MODEL_TEXT_UNICODE_H_

#include <string>
#include <string_view>

namespace tlm {

// The property White_Space: \s in patterns.
bool IsWhiteSpace(char32_t code_point);

// \w as Unicode Technical Standard 18, annex C, defines it: Alphabetic, Mark, Decimal_Number,
// Connector_Punctuation and Join_Control.
bool IsWordCharacter(char32_t code_point);

// The category Mark: Mn, Mc and Me.
bool IsMark(char32_t code_point);

// These classify code points like the methods of Python's str.
bool IsSpace(char32_t code_point);      // isspace: White_Space and U+001C to U+001F
bool IsPrintable(char32_t code_point);  // isprintable
bool IsLineBreak(char32_t code_point);  // where splitlines splits

// Appends Lowercase_Mapping as UTF-8, regardless of the neighbouring letters.
void AppendLowercase(char32_t code_point, std::string* text);

// These work like the methods of Python's str, with mappings of one letter to several and the final
// sigma.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToCapitalized(std::string_view text);  // str.capitalize
std::string ToTitle(std::string_view text);        // str.title: a word starts after any non-letter

// The normalisation forms of Unicode Standard Annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// True if the text is in the form for reasons that need no table; false says nothing.
bool IsPlainlyNormal(std::string_view text, NormalForm form);

// Takes and returns well-formed UTF-8, in a time that grows as n log n in any order of combining
// marks. The result has at most 11 times the bytes (NFKC of U+FDFA).
std::string ToNormalForm(std::string_view text, NormalForm form);

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UNICODE_H_
