// Sets of characters and lengths of texts, and how both stand in bytes.
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

// Of Unicode scalar values: surrogates are in no set.
class CharSet {
 public:
  // Both ends included.
  struct Range {
    char32_t first, last;
    friend auto operator<=>(const Range&, const Range&) = default;
  };

  CharSet() = default;
  // In any order, overlapping or not; what lies beyond U+10FFFF is left out.
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

// With the characters that differ from one of the set in case only (Unicode's simple case folding).
CharSet WithOtherCases(const CharSet& set);

// \p{name}: a general category by its short or long name, a script, a binary property, as
// "NAME", "General_Category=NAME", "gc=NAME", "Script=NAME" or "sc=NAME"; nullopt if there is none
// of the name. The data is PCRE2's. Thread-safe; the first use of a name takes some milliseconds.
std::optional<CharSet> CharsOfProperty(std::string_view name);

// How the characters of a text are written in the bytes that are generated. An expression holds all
// ways to write a text that the form has, or none, so that And, Or, and Not within AnyTextRegex
// mean for the texts what they mean for the bytes.
enum class TextForm {
  kUtf8,
  // Between the quotes of a JSON string, as Python's json.dumps(ensure_ascii=False) writes it:
  // \" \\ \b \f \n \r \t, other characters below U+0020 as \u001f with small letters, and the rest
  // as UTF-8. One way for each text.
  kJson,
  // Between the quotes of a JSON string, in every way that JSON has: each character plain or
  // escaped, \u with capital or small digits.
  kJsonAny,
};

// In kJsonAny as in kJson.
std::string EncodeText(std::string_view utf8, TextForm form);
// What `json`, a text of kJsonAny, is in kJson; whatever is malformed stays as it is.
std::string WithFewestEscapes(std::string_view json);
// The ways in which a text of kJson is written in `form`, kJson or kJsonAny.
ByteRegex JsonTextRegex(RegexSet& regexes, std::string_view json, TextForm form);

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

#endif  // TLM_MODEL_CONSTRAINT_BYTES_CHAR_SET_H_
