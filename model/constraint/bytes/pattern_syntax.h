// The syntax of patterns (pattern.h), as a tree.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_
#define TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/char_set.h"

namespace tlm {

// `parts` are those of a sequence, the alternatives, or the one that is repeated or looked for.
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
  CharSet chars;             // of kChars
  int32_t min = 1, max = 1;  // of kRepeat
  bool multiline = false;    // of kBegin and kEnd
  bool plain = true;         // no assertion inside
  size_t offset = 0;         // in the pattern
  std::vector<PatternNode> parts;
};

// Reads a pattern. Errors as of ParsePattern.
absl::StatusOr<PatternNode> ReadPattern(std::string_view pattern);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_PATTERN_SYNTAX_H_
