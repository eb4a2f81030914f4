// Parses a pattern (pattern.h) to a syntax tree.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_
#define TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/char_set.h"

namespace tlm {

inline constexpr size_t kMaxPatternBytes = size_t{64} << 10;
inline constexpr int kMaxPatternDepth = 100;         // groups in groups
inline constexpr int32_t kMaxPatternCount = 65'535;  // m and n of a quantifier

// `parts` are the parts of a sequence, the alternatives, or the one node that is repeated or
// asserted.
struct PatternNode {
  enum Kind {
    kChars,
    kSequence,
    kAlternatives,
    kRepeat,
    kBegin,
    kEnd,
    kWordEdge,
    kNoWordEdge,
    kAhead,
    kNotAhead,
  };
  Kind kind = kSequence;     // an empty sequence is the empty text
  CharSet chars;             // kChars
  int32_t min = 1, max = 1;  // kRepeat
  bool multiline = false;    // kBegin, kEnd: also match at lines
  bool plain = true;         // no assertion inside
  size_t offset = 0;         // bytes from the pattern's begin
  std::vector<PatternNode> parts;
};

// Parses a pattern. Fails as ParsePattern does, except for the limit of `regexes`.
absl::StatusOr<PatternNode> ReadPattern(std::string_view pattern);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_
