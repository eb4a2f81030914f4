// Divides text into pre-tokens. No merge crosses their borders.
#ifndef TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
#define TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/regex.h"

namespace tlm {

// GPT-2's pattern, which a ByteLevel pre-tokenizer implies (Radford et al. 2019, encoder.py).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One step; each applies to every piece that the step before it left.
struct PreTokenizerStep {
  enum Kind {
    kSplit,        // cut at both ends of every match
    kPrefixSpace,  // put a space before a piece that does not begin with one
    kMetaspace,    // put `metaspace` for every space, perhaps one in front, and cut before each
  };
  // What kSplit does with its matches.
  enum Behavior {
    kIsolated,            // the matches and the texts between them are pieces
    kRemoved,             // only the texts between matches are pieces
    kContiguous,          // matches that directly follow each other are one piece
    kMergedWithPrevious,  // a match is part of the piece before it
    kMergedWithNext,      // a match is part of the piece after it
  };
  // The pieces that kMetaspace puts one in front of, unless they begin with it.
  enum Prepend { kAlways, kNever, kFirst };

  Kind kind = kSplit;
  std::string pattern;      // for kSplit: Oniguruma syntax
  bool is_literal = false;  // the pattern is plain text instead
  Behavior behavior = kIsolated;
  bool invert = false;    // the texts between matches count as the matches
  std::string metaspace;  // for kMetaspace: one character
  Prepend prepend = kAlways;
  bool cuts = true;  // whether kMetaspace divides
};

// Immutable, so any thread may use it.
class PreTokenizer {
 public:
  // Returns the errors of Regex::Compile.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  using Sink = absl::FunctionRef<absl::Status(std::string_view)>;
  // Calls `sink` with every pre-token of well-formed UTF-8 in order; none is empty, and the view is
  // valid during the call. `begins_input` says that `text` begins the whole input; kFirst depends
  // on it. Stops at the first error of `sink` and returns it; RESOURCE_EXHAUSTED when
  // RegexMatcher::Find returns it.
  absl::Status Split(std::string_view text, bool begins_input, Sink sink) const;

 private:
  struct Step {
    PreTokenizerStep options;
    std::optional<Regex> regex;  // for kSplit
  };
  class Run;

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  std::vector<Step> steps_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
