// Upper, lower and title case.
#ifndef TLM_MODEL_TEXT_CASING_H_
#define TLM_MODEL_TEXT_CASING_H_

#include <string>
#include <string_view>

namespace tlm {

// Appends Lowercase_Mapping as UTF-8, whatever stands beside the letter.
void AppendLowercase(char32_t code_point, std::string* text);

// As Python's str has them: with the mappings of one letter to several, and the final sigma.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToCapitalized(std::string_view text);  // str.capitalize
std::string ToTitle(std::string_view text);        // str.title: a word starts behind any non-letter

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_CASING_H_
