// UTF-8: stepping, validation, and the repair of bytes that are not UTF-8.
#ifndef TLM_MODEL_TEXT_UTF8_H_
#define TLM_MODEL_TEXT_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tlm {

// What a text begins with.
struct Utf8Step {
  enum Kind {
    kCharacter,  // one well-formed character
    kInvalid,    // bytes that no continuation makes a character
    kTruncated,  // all of the text, and the beginning of a character
  };
  Kind kind;
  // Bytes of the character; of the maximal subpart to replace by one U+FFFD (The Unicode Standard,
  // section 3.9, "U+FFFD Substitution of Maximal Subparts"); or of the whole text. At least 1.
  size_t length;
};

// `text` must not be empty.
Utf8Step NextUtf8(std::string_view text);

// Where the first byte stands that is not part of well-formed UTF-8; npos when there is none.
size_t FindInvalidUtf8(std::string_view text);

// The first and the last character of well-formed, non-empty UTF-8, and their lengths in bytes.
struct Utf8Character {
  char32_t code_point;
  size_t length;
};
Utf8Character FirstCharacter(std::string_view text);
Utf8Character LastCharacter(std::string_view text);

// `code_point` must be a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* text);

// Turns bytes that arrive in any portions into well-formed UTF-8: what can never become a character
// becomes U+FFFD, one for each maximal subpart, and what still can is held back (at most 3 bytes).
// What comes out does not depend on how the bytes were divided. Not thread-safe.
class Utf8Repair {
 public:
  enum class Unit { kMaximalSubpart, kByte };

  // With kByte every byte that is part of no character becomes a U+FFFD of its own.
  explicit Utf8Repair(Unit unit = Unit::kMaximalSubpart) : unit_(unit) {}

  // Appends to `out` what `bytes` completes.
  void Append(std::string_view bytes, std::string* out);
  // The input has ended: what was held back becomes U+FFFD. Ready for another input afterwards.
  void Flush(std::string* out);
  // Whether bytes are held back.
  bool holds() const { return !held_.empty(); }

 private:
  void AppendReplacement(size_t bytes, std::string* out) const;

  Unit unit_;
  std::string held_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UTF8_H_
