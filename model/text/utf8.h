// UTF-8: validation, iteration by code point, and repair of bytes that are not UTF-8.
#ifndef TLM_MODEL_TEXT_UTF8_H_
#define TLM_MODEL_TEXT_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tlm {

// The first character of a text that may not be UTF-8.
struct Utf8Step {
  enum Kind {
    kCharacter,  // one well-formed character
    kInvalid,    // bytes that begin no character, whatever follows
    kTruncated,  // the whole text is the beginning of a character
  };
  Kind kind;
  // The length in bytes of the character; of the maximal subpart to replace by one U+FFFD (The
  // Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"); or of the whole
  // text. At least 1.
  size_t length;
};

// `text` must not be empty.
Utf8Step NextUtf8(std::string_view text);

// Returns the offset of the first byte that is not part of well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);
inline bool IsValidUtf8(std::string_view text) { return FindInvalidUtf8(text) == text.npos; }

// The following functions take well-formed UTF-8.

// The first or the last character of a text that is not empty, and its length in bytes.
struct Utf8Character {
  char32_t code_point;
  size_t length;
};
Utf8Character FirstCharacter(std::string_view text);
Utf8Character LastCharacter(std::string_view text);

// Returns the code point at byte `*position`, and moves the position after it.
char32_t NextCodePoint(std::string_view text, size_t* position);
// Returns the code point before byte `*position`, and moves the position to its first byte.
char32_t PreviousCodePoint(std::string_view text, size_t* position);

size_t CountCodePoints(std::string_view text);
// Returns the offset of code point number `index`, or the length in bytes when there are fewer.
size_t ByteOffset(std::string_view text, size_t index);

// text.find(part, from) in time linear in the length of the text: string_view::find takes the
// product of both lengths where a text repeats itself.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);

// Returns `text` without the leading or trailing code points for which `strips` is true.
template <typename Predicate>
std::string_view StripLeft(std::string_view text, Predicate strips) {
  size_t start = 0;
  for (size_t next = 0; start < text.size(); start = next) {
    if (!strips(NextCodePoint(text, &next))) break;
  }
  return text.substr(start);
}
template <typename Predicate>
std::string_view StripRight(std::string_view text, Predicate strips) {
  size_t end = text.size();
  for (size_t previous = end; end > 0; end = previous) {
    if (!strips(PreviousCodePoint(text, &previous))) break;
  }
  return text.substr(0, end);
}

// `code_point` must be a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* text);

// Turns bytes that arrive in any portions into well-formed UTF-8. Bytes that can never become a
// character become U+FFFD, one for each maximal subpart; bytes that still can are held back (at
// most 3). The output does not depend on how the bytes were divided. Not thread-safe.
class Utf8Repair {
 public:
  enum class Unit { kMaximalSubpart, kByte };

  // With kByte, every byte that is part of no character becomes a U+FFFD of its own.
  explicit Utf8Repair(Unit unit = Unit::kMaximalSubpart) : unit_(unit) {}

  // Appends to `out` the text that `bytes` completes.
  void Append(std::string_view bytes, std::string* out);
  // Ends the input: bytes that were held back become U+FFFD. The next input may follow.
  void Flush(std::string* out);
  // True while bytes are held back.
  bool holds() const { return !held_.empty(); }

 private:
  void AppendReplacement(size_t bytes, std::string* out) const;

  Unit unit_;
  std::string held_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_UTF8_H_
