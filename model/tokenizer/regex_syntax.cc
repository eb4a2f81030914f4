#include "model/tokenizer/regex_syntax.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// Oniguruma's \w. PCRE2 10.42 leaves out marks and connectors other than '_'.
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
    // Directly after the bracket both take ']' for itself.
    if (!Rest().empty() && Rest()[0] == ']') Copy(1);
    return absl::OkStatus();
  }

  absl::Status StepInClass() {
    const std::string_view rest = Rest();
    if (rest[0] == '\\') return Escape();
    // A class within a class and an intersection: PCRE2 would take the characters for themselves.
    if (rest[0] == '[') return Unsupported(1);
    if (rest.substr(0, 2) == "&&") return Unsupported(2);
    if (rest[0] == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // (...), (?:...), look-around, atomic groups, and the one option both spell alike: i.
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

  // {n}, {n,} and {n,m}. Oniguruma reads {,m} as well, and reads a '+' behind as repetition where
  // PCRE2 reads a possessive quantifier.
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

  // \p{Name} or \p{^Name}; PCRE2 knows whether there is such a property.
  absl::Status PropertyEscape() {
    const size_t end = Rest().find('}');
    if (Rest().substr(2, 1) != "{" || end == std::string_view::npos) return Unsupported(3);
    Copy(end + 1);
    return absl::OkStatus();
  }

  // \uHHHH
  absl::Status UnicodeEscape() {
    const std::string_view digits = Rest().substr(2, 4);
    if (!AreHexDigits(digits) || digits.size() != 4) return Unsupported(6);
    Replace(6, fmt::format("\\x{{{}}}", digits));
    return absl::OkStatus();
  }

  // \x{H...}, or \xHH of an ASCII character: above it Oniguruma means a byte, PCRE2 a character.
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

}  // namespace

absl::StatusOr<std::string> ToPcre2Syntax(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace tlm
