// Properties of characters.
#ifndef TLM_MODEL_TEXT_UNICODE_H_
#define TLM_MODEL_TEXT_UNICODE_H_

#include <string>

namespace tlm {

// The property White_Space: \s.
bool IsWhiteSpace(char32_t code_point);

// \w as Unicode Technical Standard 18, annex C, defines it: Alphabetic, Mark, Decimal_Number,
// Connector_Punctuation and Join_Control.
bool IsWordCharacter(char32_t code_point);

// The category Mark: Mn, Mc and Me.
bool IsMark(char32_t code_point);

// Appends Lowercase_Mapping as UTF-8, no regard paid to the neighbours.
void AppendLowercase(char32_t code_point, std::string* text);

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UNICODE_H_
