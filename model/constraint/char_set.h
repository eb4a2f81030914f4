// Sets of Unicode characters.
#ifndef TLM_MODEL_CONSTRAINT_CHAR_SET_H_
#define TLM_MODEL_CONSTRAINT_CHAR_SET_H_

#include <optional>
#include <string_view>
#include <vector>

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
  // Of the characters of a well-formed UTF-8 text.
  static CharSet OfText(std::string_view utf8);
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

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_CHAR_SET_H_
