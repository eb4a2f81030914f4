// Character classes of Unicode.
#ifndef TLM_MODEL_TEXT_UNICODE_H_
#define TLM_MODEL_TEXT_UNICODE_H_

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

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UNICODE_H_
