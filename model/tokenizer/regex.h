// Regular expressions over UTF-8 (PCRE2, compiled to machine code where the system allows it).
#ifndef TLM_MODEL_TOKENIZER_REGEX_H_
#define TLM_MODEL_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// PCRE2's types, declared here because this header does not include <pcre2.h>.
struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace tlm {

// Translates a pattern of Oniguruma's own syntax over UTF-8 into one that matches the same texts in
// PCRE2 with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. Constructs that both read alike are copied,
// \s and \w become the corresponding properties, and constructs that they read differently (\h,
// [a&&b], (?m), a+ after {1,3}, ...) are UNIMPLEMENTED; the message names the construct and its
// byte offset. A malformed pattern may pass: PCRE2 refuses it.
absl::StatusOr<std::string> ToPcre2Syntax(std::string_view pattern);

// Immutable, so any thread may use it through a RegexMatcher of its own.
class Regex {
 public:
  // Compiles a pattern in Oniguruma's syntax. INVALID_ARGUMENT, with PCRE2's message and the byte
  // offset, when it is malformed; UNIMPLEMENTED when ToPcre2Syntax returns it.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  // Makes a pattern that matches exactly `text`.
  static absl::StatusOr<Regex> CompileLiteral(std::string_view text);

 private:
  friend class RegexMatcher;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, Free>;

  explicit Regex(Code code) : code_(std::move(code)) {}
  static absl::StatusOr<Code> CompilePcre2(std::string_view pattern, unsigned options);

  Code code_;
};

// Searches with one Regex, which must outlive it. Not thread-safe.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);
  RegexMatcher(RegexMatcher&& other) noexcept;
  ~RegexMatcher();

  struct Match {
    size_t begin;  // byte offsets in the subject; begin <= end
    size_t end;
  };
  // Returns the leftmost match that begins at byte `from` or later; look-behind sees the text
  // before it. `subject` must be well-formed UTF-8 (it is not checked again) and `from` a character
  // boundary. RESOURCE_EXHAUSTED when the search needs more backtracking or memory than its fixed
  // limits allow.
  absl::StatusOr<std::optional<Match>> Find(std::string_view subject, size_t from);

  using SegmentSink = absl::FunctionRef<absl::Status(std::string_view segment, bool is_match)>;
  // Calls `sink` with all of `subject` in order: the successive matches and the texts between them.
  // Only matches may be empty, but no empty match begins where the match before it ended. Stops at
  // the first error of `sink` and returns it.
  absl::Status ForEachSegment(std::string_view subject, SegmentSink sink);

 private:
  struct Free {
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };

  int MatchWithMoreStack(std::string_view subject, size_t from);

  const pcre2_real_code_8* code_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;  // created when the machine stack is too
                                                         // small
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_REGEX_H_
