// Expressions for texts: bytes that stand for characters, and how.
#ifndef TLM_MODEL_CONSTRAINT_TEXT_REGEX_H_
#define TLM_MODEL_CONSTRAINT_TEXT_REGEX_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "model/constraint/char_set.h"
#include "model/constraint/regex_set.h"

namespace tlm {

// How the characters of a text stand in the bytes that are generated. Each text stands in one way,
// so that And, Or, and Not within AnyTextRegex mean for the texts what they mean for the bytes.
enum class TextForm {
  kUtf8,
  // Between the quotes of a JSON string, as Python's json.dumps(ensure_ascii=False) writes it:
  // \" \\ \b \f \n \r \t, other characters below U+0020 as \u001f with small letters, and the rest
  // as UTF-8.
  kJson,
};

std::string EncodeText(std::string_view utf8, TextForm form);

// One character of the set.
ByteRegex CharRegex(RegexSet& regexes, const CharSet& set, TextForm form);
ByteRegex AnyTextRegex(RegexSet& regexes, TextForm form);

inline constexpr int64_t kNoMaxLength = std::numeric_limits<int64_t>::max();
// The texts of `min` to `max` characters; max may be kNoMaxLength. Beyond 2^31 - 2 `min` holds no
// text and `max` is none.
ByteRegex TextLengthRegex(RegexSet& regexes, int64_t min, int64_t max, TextForm form);

// Whether the expression holds `bytes`. For few and short ones: a RegexDfa is faster.
bool Matches(RegexSet& regexes, ByteRegex regex, std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_TEXT_REGEX_H_
