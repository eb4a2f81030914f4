// Division of text into pre-tokens, across whose borders no merge reaches.
#ifndef TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
#define TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
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

// One step; each applies to every piece that the one before it left.
struct PreTokenizerStep {
  enum Kind {
    kSplit,        // cut at both ends of every match
    kPrefixSpace,  // put a space before a piece that does not begin with one
  };
  enum Behavior {
    kIsolated,          // matches and what lies between them are pieces
    kMatchesRemoved,    // only what lies between them
    kMatchesKeptAlone,  // only the matches
  };
  Kind kind = kSplit;
  std::string pattern;      // of kSplit: Oniguruma syntax
  bool is_literal = false;  // the pattern is plain text instead
  Behavior behavior = kIsolated;
};

// Immutable, so any thread may use it.
class PreTokenizer {
 public:
  // INVALID_ARGUMENT and UNIMPLEMENTED as Regex::Compile gives them.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  using Sink = absl::FunctionRef<absl::Status(std::string_view)>;
  // Calls `sink` with every pre-token of well-formed UTF-8 in order, none of them empty; the view
  // is valid during the call. Stops at the first error of `sink` and returns it; RESOURCE_EXHAUSTED
  // as RegexMatcher::Find gives it.
  absl::Status Split(std::string_view text, Sink sink) const;

 private:
  struct Step {
    PreTokenizerStep::Kind kind;
    PreTokenizerStep::Behavior behavior;
    std::optional<Regex> regex;  // of kSplit
  };
  class Run;

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  std::vector<Step> steps_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
