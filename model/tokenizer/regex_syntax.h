// Patterns of tokenizer.json are written for Oniguruma; this turns them into PCRE2's.
#ifndef TLM_MODEL_TOKENIZER_REGEX_SYNTAX_H_
#define TLM_MODEL_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// A pattern for PCRE2 with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE that matches what `pattern`
// matches in Oniguruma's own syntax over UTF-8. What the two read alike is copied, \s and \w become
// the properties they stand for, and what they read differently (\h, [a&&b], (?m), a+ after {1,3},
// ...) is UNIMPLEMENTED, naming the construct and its byte offset. A malformed pattern may pass:
// PCRE2 refuses it.
absl::StatusOr<std::string> ToPcre2Syntax(std::string_view pattern);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_REGEX_SYNTAX_H_
