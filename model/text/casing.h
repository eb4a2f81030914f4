// Upper, lower and title case as Python's str has them: Unicode's full mappings (one letter may
// become three) and the final sigma of Greek words.
#ifndef TLM_MODEL_TEXT_CASING_H_
#define TLM_MODEL_TEXT_CASING_H_

#include <string>
#include <string_view>

namespace tlm::jinja {

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToCapitalized(std::string_view text);  // str.capitalize
std::string ToTitle(std::string_view text);        // str.title: words start behind any non-letter

// Properties Uppercase and Lowercase; category Lt counts as neither.
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);
bool IsTitle(char32_t code_point);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_TEXT_CASING_H_
