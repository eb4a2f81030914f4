// Translates patterns, the regular expressions of JSON Schema and of constraints, to expressions.
//
// The syntax is ECMA-262 with the flag u, plus common extensions:
//
//   literals, . (no line terminator), [a-z] [^a-z] [] [^], | ( ) (?: ) (?<name> ) (?P<name> )
//   * + ? {m} {m,} {m,n}, each also with a ? after it; { is a literal if it starts no quantifier
//   \d \w (ASCII) \s (Unicode) \D \W \S \p{..} \P{..} \pL (char_set.h); characters on which
//   Python's re differs, such as letters beyond ASCII, match neither \w nor \W
//   \t \n \r \f \v \0 \cX \xHH \uHHHH \u{..}, and \ before any other ASCII character except
//   letters and digits; a backspace is [\b]
//   ^ $ \b \B \A \z, and (?= ) (?! ) outside of unbounded repetitions
//   (?i) (?s) (?m) and (?i-s: ): letters in any case (Unicode), . with line terminators, ^ and $ at
//   them. As in ECMA-262, (?i:\w) also takes other cases of s and k, U+017F and U+212A. \b stays
//   ASCII.
//
// An unbounded repetition may contain assertions only in forms that are known to be regular: ^ and
// $, as in (^a|b|c$)* or (a(,|$))+, and ((?!x)[^y])* before the end of the text. These are not
// supported, because they are not regular or have several meanings: back references, lookbehind,
// atomic groups, possessive quantifiers, conditions, recursion, comments, and escapes of unpaired
// surrogates.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_
#define TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_set.h"

namespace tlm {

struct PatternOptions {
  // The pattern must match the whole text; otherwise any part of it, as for `pattern` of JSON
  // Schema.
  bool whole = false;
  TextForm form = TextForm::kUtf8;
};

// Exactly the texts that match: every text with any match, whichever match a backtracking search
// would find. The time is linear in the pattern and in the copies of repetitions that contain
// assertions; their number is limited. INVALID_ARGUMENT with the byte offset for malformed or
// unsupported patterns; RESOURCE_EXHAUSTED above the limits of pattern_syntax.h or of `regexes`.
absl::StatusOr<ByteRegex> ParsePattern(RegexSet& regexes, std::string_view pattern,
                                       PatternOptions options);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_PATTERN_H_
