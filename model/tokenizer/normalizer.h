// The changes to a text before pre-tokenization.
#ifndef TLM_MODEL_TOKENIZER_NORMALIZER_H_
#define TLM_MODEL_TOKENIZER_NORMALIZER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/text/unicode.h"
#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/regex.h"

namespace tlm {

// Steps of a normalizer, named as tokenizer.json names them.
struct PrependStep {
  std::string text;  // inserted before text that is not empty
};
struct ReplaceStep {
  std::string pattern;      // Oniguruma's syntax, not empty
  bool is_literal = false;  // the pattern is plain text instead
  std::string content;      // replaces every match
};
struct StripStep {
  bool left = true;  // removes White_Space at this end
  bool right = true;
};
struct LowercaseStep {};     // lowercases each character on its own
struct StripAccentsStep {};  // removes the characters of category M
struct NmtStep {};           // removes control characters, turns unusual white space into spaces
struct PrecompiledStep {
  std::string charsmap;  // base64
};
using NormalizerStep = std::variant<NormalForm, PrependStep, ReplaceStep, StripStep, LowercaseStep,
                                    StripAccentsStep, NmtStep, PrecompiledStep>;

// Immutable, so any thread may use it.
class Normalizer {
 public:
  // A text of n bytes may become one of kMaxGrowth * n + kMaxGrowthBytes.
  static constexpr size_t kMaxGrowth = 32;
  static constexpr size_t kMaxGrowthBytes = 1024;
  // The limit of the texts that Prepend and Replace insert.
  static constexpr size_t kMaxContentBytes = 256;

  Normalizer() = default;
  // INVALID_ARGUMENT for contents longer than kMaxContentBytes; otherwise the errors of
  // Charsmap::Create and Regex::Compile.
  static absl::StatusOr<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  // Takes and returns well-formed UTF-8. The result is `text` itself or a view of `storage`, which
  // must outlive its use. RESOURCE_EXHAUSTED when it would be larger than its limit, and when
  // RegexMatcher::Find returns it.
  absl::StatusOr<std::string_view> Normalize(std::string_view text, std::string* storage) const;

 private:
  struct RegexReplacement {
    Regex regex;
    std::string content;
  };
  using Step = std::variant<NormalForm, PrependStep, ReplaceStep, StripStep, LowercaseStep,
                            StripAccentsStep, NmtStep, Charsmap, RegexReplacement>;
  class Run;

  std::vector<Step> steps_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_NORMALIZER_H_
