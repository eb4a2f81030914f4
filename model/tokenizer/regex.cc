#define PCRE2_CODE_UNIT_WIDTH 8

#include "model/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <new>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

// Oniguruma's \w. PCRE2 10.42 omits marks and connectors other than '_'.
constexpr std::string_view kWordProperties = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

bool Contains(std::string_view set, char c) { return set.find(c) != set.npos; }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (position_ < pattern_.size()) {
      TLM_RETURN_IF_ERROR(in_class_ ? StepInClass() : Step());
    }
    return std::move(result_);
  }

 private:
  std::string_view Rest() const { return pattern_.substr(position_); }

  void Copy(size_t length) {
    result_ += Rest().substr(0, length);
    position_ += std::min(length, Rest().size());
  }

  void Replace(size_t length, std::string_view by) {
    result_ += by;
    position_ += length;
  }

  absl::Status Unsupported(size_t length) const {
    return Unimplemented("{} at offset {} of a regular expression is not supported",
                         Quoted(Rest().substr(0, length)), position_);
  }

  absl::Status Step() {
    switch (Rest()[0]) {
      case '\\':
        return Escape();
      case '[':
        return OpenClass();
      case '(':
        return OpenGroup();
      case '{':
        return Interval();
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status OpenClass() {
    in_class_ = true;
    Copy(Rest().substr(0, 2) == "[^" ? 2 : 1);
    // Directly after the bracket, both read ']' as a character.
    if (!Rest().empty() && Rest()[0] == ']') Copy(1);
    return absl::OkStatus();
  }

  absl::Status StepInClass() {
    const std::string_view rest = Rest();
    if (rest[0] == '\\') return Escape();
    // For a class within a class and an intersection: PCRE2 would read these characters literally.
    if (rest[0] == '[') return Unsupported(1);
    if (rest.substr(0, 2) == "&&") return Unsupported(2);
    if (rest[0] == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // Handles (...), (?:...), look-around, atomic groups, and the one option that both spell alike:
  // i.
  absl::Status OpenGroup() {
    const std::string_view rest = Rest();
    if (rest.substr(0, 2) == "(*") return Unsupported(2);
    if (rest.substr(0, 2) != "(?") {
      Copy(1);
      return absl::OkStatus();
    }
    for (const std::string_view opening :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?i)", "(?-i:", "(?-i)"}) {
      if (rest.substr(0, opening.size()) == opening) {
        Copy(opening.size());
        return absl::OkStatus();
      }
    }
    return Unsupported(4);
  }

  // Handles {n}, {n,} and {n,m}. Oniguruma also reads {,m}, and takes a '+' after it for a
  // repetition where PCRE2 reads a possessive quantifier.
  absl::Status Interval() {
    const size_t end = Rest().find('}');
    if (Rest().substr(0, 2) == "{," || end == std::string_view::npos) return Unsupported(2);
    if (Rest().substr(end + 1, 1) == "+") return Unsupported(end + 2);
    Copy(end + 1);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    const std::string_view rest = Rest();
    if (rest.size() < 2) {
      Copy(1);
      return absl::OkStatus();
    }
    const char c = rest[1];
    if (c == 's' || c == 'S') {
      Replace(2, c == 's' ? R"(\p{White_Space})" : R"(\P{White_Space})");
      return absl::OkStatus();
    }
    if (c == 'w' || c == 'W') return WordEscape(c == 'W');
    if (c == 'u') return UnicodeEscape();
    if (c == 'x') return HexEscape();
    if (c == 'p' || c == 'P') return PropertyEscape();
    const bool same_in_both = Contains("dDrntfae", c) || (!in_class_ && Contains("Az", c)) ||
                              static_cast<unsigned char>(c) >= 0x80 ||
                              std::ispunct(static_cast<unsigned char>(c)) != 0 || c == ' ';
    if (!same_in_both) return Unsupported(2);
    Copy(2);
    return absl::OkStatus();
  }

  absl::Status WordEscape(bool negated) {
    if (in_class_ && negated) return Unsupported(2);
    if (in_class_) {
      Replace(2, kWordProperties);
    } else {
      Replace(2, fmt::format("[{}{}]", negated ? "^" : "", kWordProperties));
    }
    return absl::OkStatus();
  }

  // Handles \p{Name} or \p{^Name}; PCRE2 knows whether there is such a property.
  absl::Status PropertyEscape() {
    const size_t end = Rest().find('}');
    if (Rest().substr(2, 1) != "{" || end == std::string_view::npos) return Unsupported(3);
    Copy(end + 1);
    return absl::OkStatus();
  }

  // Handles \uHHHH.
  absl::Status UnicodeEscape() {
    const std::string_view digits = Rest().substr(2, 4);
    if (!AreHexDigits(digits) || digits.size() != 4) return Unsupported(6);
    Replace(6, fmt::format("\\x{{{}}}", digits));
    return absl::OkStatus();
  }

  // Handles \x{H...}, or \xHH of an ASCII character: above it Oniguruma means a byte, PCRE2 a
  // character.
  absl::Status HexEscape() {
    if (Rest().substr(2, 1) == "{") {
      const size_t end = Rest().find('}');
      if (end == std::string_view::npos || !AreHexDigits(Rest().substr(3, end - 3))) {
        return Unsupported(4);
      }
      Copy(end + 1);
      return absl::OkStatus();
    }
    const std::string_view digits = Rest().substr(2, 2);
    if (!AreHexDigits(digits) || digits.size() != 2 || digits[0] >= '8') return Unsupported(4);
    Copy(4);
    return absl::OkStatus();
  }

  static bool AreHexDigits(std::string_view text) {
    for (const char c : text) {
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
    }
    return !text.empty();
  }

  const std::string_view pattern_;
  size_t position_ = 0;
  bool in_class_ = false;
  std::string result_;
};

// The bounds of one search. The patterns of published tokenizers backtrack at most once per
// character.
constexpr uint32_t kMatchLimit = 100'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackStartBytes = size_t{64} << 10;
constexpr size_t kJitStackMaxBytes = size_t{4} << 20;
constexpr size_t kMaxPatternBytes = size_t{64} << 10;

PCRE2_SPTR8 Data(std::string_view text) { return reinterpret_cast<PCRE2_SPTR8>(text.data()); }

std::string ErrorMessage(int error) {
  PCRE2_UCHAR8 buffer[256];
  if (pcre2_get_error_message_8(error, buffer, sizeof(buffer)) < 0) {
    return fmt::format("PCRE2 error {}", error);
  }
  return reinterpret_cast<const char*>(buffer);
}

template <typename T>
T* OrBadAlloc(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

// The newline is fixed because PCRE2's default is chosen when the library is built.
pcre2_code_8* CompileCode(std::string_view pattern, uint32_t options, int* error, size_t* offset) {
  const std::unique_ptr<pcre2_compile_context_8, decltype(&pcre2_compile_context_free_8)> context(
      OrBadAlloc(pcre2_compile_context_create_8(nullptr)), &pcre2_compile_context_free_8);
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  return pcre2_compile_8(Data(pattern), pattern.size(), options, error, offset, context.get());
}

}  // namespace

absl::StatusOr<std::string> ToPcre2Syntax(std::string_view pattern) {
  return Translator(pattern).Run();
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free_8(code); }

absl::StatusOr<Regex::Code> Regex::CompilePcre2(std::string_view pattern, unsigned options) {
  int error = 0;
  size_t offset = 0;
  Code code(CompileCode(pattern, options, &error, &offset));
  if (code == nullptr) {
    return InvalidArgument("regular expression {} is malformed at offset {}: {}", Quoted(pattern),
                           offset, ErrorMessage(error));
  }
  // If memory cannot be made executable this fails, and the interpreter does the work.
  pcre2_jit_compile_8(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("regular expression has {} bytes, the limit is {}", pattern.size(),
                           kMaxPatternBytes);
  }
  constexpr unsigned kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  TLM_ASSIGN_OR_RETURN(const std::string translated, ToPcre2Syntax(pattern));
  absl::StatusOr<Code> code = CompilePcre2(translated, kOptions);
  if (!code.ok()) {
    // An offset in the author's pattern is more useful than one in the translation.
    TLM_RETURN_IF_ERROR(CompilePcre2(pattern, kOptions).status());
    return code.status();
  }
  return Regex(*std::move(code));
}

absl::StatusOr<Regex> Regex::CompileLiteral(std::string_view text) {
  if (text.size() > kMaxPatternBytes) {
    return InvalidArgument("separator has {} bytes, the limit is {}", text.size(),
                           kMaxPatternBytes);
  }
  TLM_ASSIGN_OR_RETURN(Code code, CompilePcre2(text, PCRE2_UTF | PCRE2_LITERAL));
  return Regex(std::move(code));
}

void RegexMatcher::Free::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free_8(context);
}
void RegexMatcher::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free_8(data);
}
void RegexMatcher::Free::operator()(pcre2_real_jit_stack_8* stack) const {
  pcre2_jit_stack_free_8(stack);
}

// One pair of offsets is enough: groups are not needed.
RegexMatcher::RegexMatcher(const Regex& regex)
    : code_(regex.code_.get()),
      context_(OrBadAlloc(pcre2_match_context_create_8(nullptr))),
      data_(OrBadAlloc(pcre2_match_data_create_8(1, nullptr))) {
  pcre2_set_match_limit_8(context_.get(), kMatchLimit);
  pcre2_set_heap_limit_8(context_.get(), kHeapLimitKib);
}

RegexMatcher::RegexMatcher(RegexMatcher&& other) noexcept = default;
RegexMatcher::~RegexMatcher() = default;

// JIT code may use 32 KiB of the machine stack, which repeated groups over long texts exceed. A
// larger stack is made once; searches that exceed even this go to the interpreter, whose memory is
// the heap.
int RegexMatcher::MatchWithMoreStack(std::string_view subject, size_t from) {
  if (stack_ == nullptr) {
    stack_.reset(pcre2_jit_stack_create_8(kJitStackStartBytes, kJitStackMaxBytes, nullptr));
    if (stack_ != nullptr) {
      pcre2_jit_stack_assign_8(context_.get(), nullptr, stack_.get());
      const int result = pcre2_match_8(code_, Data(subject), subject.size(), from,
                                       PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    }
  }
  return pcre2_match_8(code_, Data(subject), subject.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_.get(), context_.get());
}

absl::StatusOr<std::optional<RegexMatcher::Match>> RegexMatcher::Find(std::string_view subject,
                                                                      size_t from) {
  int result = pcre2_match_8(code_, Data(subject), subject.size(), from, PCRE2_NO_UTF_CHECK,
                             data_.get(), context_.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = MatchWithMoreStack(subject, from);
  if (result == PCRE2_ERROR_NOMATCH) return std::optional<Match>();
  if (result < 0) {
    return ResourceExhausted("regular expression search stopped at byte {} of {}: {}", from,
                             subject.size(), ErrorMessage(result));
  }
  const size_t* const offsets = pcre2_get_ovector_pointer_8(data_.get());
  return std::optional<Match>({offsets[0], offsets[1]});
}

absl::Status RegexMatcher::ForEachSegment(std::string_view subject, SegmentSink sink) {
  std::optional<size_t> done;  // the end of the last match
  size_t from = 0;
  while (from <= subject.size()) {
    TLM_ASSIGN_OR_RETURN(const std::optional<Match> match, Find(subject, from));
    if (!match.has_value()) break;
    from = match->end;
    if (match->begin == match->end && done == match->end) {
      from += from < subject.size() ? FirstCharacter(subject.substr(from)).length : 1;
      continue;
    }
    if (const size_t gap = done.value_or(0); gap < match->begin) {
      TLM_RETURN_IF_ERROR(sink(subject.substr(gap, match->begin - gap), false));
    }
    TLM_RETURN_IF_ERROR(sink(subject.substr(match->begin, match->end - match->begin), true));
    done = match->end;
  }
  if (done.value_or(0) == subject.size()) return absl::OkStatus();
  return sink(subject.substr(done.value_or(0)), false);
}

}  // namespace tlm
