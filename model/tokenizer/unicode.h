// The two character classes that the matching of added tokens asks for.
#ifndef TLM_MODEL_TOKENIZER_UNICODE_H_
#define TLM_MODEL_TOKENIZER_UNICODE_H_

namespace tlm {

// The property White_Space: \s.
bool IsWhiteSpace(char32_t code_point);

// \w as Unicode Technical Standard 18, annex C, defines it: Alphabetic, Mark, Decimal_Number,
// Connector_Punctuation and Join_Control.
bool IsWordCharacter(char32_t code_point);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_UNICODE_H_
