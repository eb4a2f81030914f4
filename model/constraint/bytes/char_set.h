// Sets of characters, and expressions for characters and texts as bytes.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_CHAR_SET_H_
#define TLM_MODEL_CONSTRAINT_BYTES_CHAR_SET_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/constraint/bytes/regex_set.h"

namespace tlm {

// A set of Unicode scalar values, so no surrogates.
class CharSet {
 public:
  // Includes both ends.
  struct Range {
    char32_t first, last;
    friend auto operator<=>(const Range&, const Range&) = default;
  };

  CharSet() = default;
  // The ranges may be in any order and may overlap. Values above U+10FFFF are left out.
  explicit CharSet(std::vector<Range> ranges);
  static CharSet Of(char32_t character) { return CharSet({{character, character}}); }
  static CharSet Of(char32_t first, char32_t last) { return CharSet({{first, last}}); }
  static const CharSet& All();

  // Sorted, neither overlapping nor adjacent, except at the surrogates.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool Has(char32_t character) const;

  friend CharSet operator|(const CharSet& a, const CharSet& b);
  friend CharSet operator&(const CharSet& a, const CharSet& b);
  friend CharSet operator~(const CharSet& set);
  friend bool operator==(const CharSet&, const CharSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// The set, plus the characters that differ from one of it in case only (Unicode's simple case
// folding).
CharSet WithOtherCases(const CharSet& set);

// The set of \p{name}. The name is "NAME", "General_Category=NAME", "gc=NAME", "Script=NAME" or
// "sc=NAME", where NAME is a general category (short or long), a script or a binary property.
// nullopt for an unknown name. The data is PCRE2's. Thread-safe; the first use of a name takes some
// milliseconds.
std::optional<CharSet> CharsOfProperty(std::string_view name);

// How the characters of a text are written as bytes. An expression holds either all bytes that
// write a text in the form, or none of them. So And, Or, and Not within AnyTextRegex have the same
// meaning for texts as for bytes.
enum class TextForm {
  kUtf8,
  // Between the quotes of a JSON string, as Python's json.dumps(ensure_ascii=False) writes it: \"
  // \\ \b \f \n \r \t, other characters below U+0020 as \u001f with small letters, and the rest as
  // UTF-8. Each text is written in one way.
  kJson,
  // Between the quotes of a JSON string, in every way that JSON has: each character plain or
  // escaped, \u with capital or small digits.
  kJsonAny,
};

// The text in the form. For kJsonAny the result is the text in kJson.
std::string EncodeText(std::string_view utf8, TextForm form);
// Translates a text from kJsonAny to kJson. Malformed parts are left unchanged.
std::string WithFewestEscapes(std::string_view json);
// All ways to write `json`, a text in kJson, in `form`: kJson or kJsonAny.
ByteRegex JsonTextRegex(RegexSet& regexes, std::string_view json, TextForm form);

// One character of the set.
ByteRegex CharRegex(RegexSet& regexes, const CharSet& set, TextForm form);
// Any text, also the empty one.
ByteRegex AnyTextRegex(RegexSet& regexes, TextForm form);

inline constexpr int64_t kNoMaxLength = std::numeric_limits<int64_t>::max();
// The texts of `min` to `max` characters; max may be kNoMaxLength. With `min` above 2^31 - 2 there
// is no text, and a `max` above it means kNoMaxLength.
ByteRegex TextLengthRegex(RegexSet& regexes, int64_t min, int64_t max, TextForm form);

// Whether the expression holds `bytes`. For many or long texts a RegexDfa is faster.
bool Matches(RegexSet& regexes, ByteRegex regex, std::string_view bytes);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_CHAR_SET_H_
