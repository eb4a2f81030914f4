// Regular expressions as texts: the patterns of JSON Schema, and of constraints.
//
// The syntax is ECMA-262's with the flag u, with what is common beyond it:
//
//   literals, . (no line terminator), [a-z] [^a-z] [] [^], | ( ) (?: ) (?<name> ) (?P<name> )
//   * + ? {m} {m,} {m,n}, each also with ? behind it; { is a literal where it is no quantifier
//   \d \w (ASCII) \s (Unicode) \D \W \S \p{..} \P{..} \pL (char_set.h); characters that Python's re
//   takes otherwise, such as letters beyond ASCII, match neither \w nor \W
//   \t \n \r \f \v \0 \cX \xHH \uHHHH \u{..}, and \ before any other ASCII character but letters
//   and digits; a backspace is [\b]
//   ^ $ \b \B \A \z, and (?= ) (?! ) outside of unbounded repetitions
//   (?i) (?s) (?m) and (?i-s: ): letters in any case (Unicode), . with line terminators, ^ and $ at
//   them. As in ECMA-262, (?i:\w) also takes other cases of s and k, U+017F and U+212A. \b stays
//   ASCII.
//
// An unbounded repetition may hold assertions where they leave it regular in plain sight: ^ and $,
// as in (^a|b|c$)* or (a(,|$))+, and ((?!x)[^y])* before the end of the text. Not supported, as it
// is not regular or has several meanings: references back, lookbehind, atomic groups, possessive
// quantifiers, conditions, recursion, comments, and escapes of surrogates that are no pair.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_
#define TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_set.h"

namespace tlm {

inline constexpr size_t kMaxPatternBytes = size_t{64} << 10;
inline constexpr int kMaxPatternDepth = 100;         // of groups
inline constexpr int32_t kMaxPatternCount = 65'535;  // of a quantifier

struct PatternOptions {
  // The pattern matches the whole text; otherwise some part of it, as `pattern` of JSON Schema.
  bool whole = false;
  TextForm form = TextForm::kUtf8;
};

// The texts that match, exactly: those of any match there is, whichever a backtracking search would
// find. Takes time linear in the pattern, and in the copies of repetitions that hold assertions,
// which are limited. INVALID_ARGUMENT with the byte offset for what is malformed or not supported;
// RESOURCE_EXHAUSTED for more than the limits above, or than `regexes` holds.
absl::StatusOr<ByteRegex> ParsePattern(RegexSet& regexes, std::string_view pattern,
                                       PatternOptions options);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_
