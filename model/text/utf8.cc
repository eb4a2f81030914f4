#include "model/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tlm {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

uint8_t ByteAt(std::string_view text, size_t position) {
  return static_cast<uint8_t>(text[position]);
}

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xc0u) == 0x80; }

// The Unicode Standard, table 3-7: the length of the character of a lead byte, and the second bytes
// that it allows. Length 0 for bytes that lead no character.
struct Lead {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Returns how many bytes at the start of `text` are ASCII; may stop up to 7 bytes early.
size_t AsciiPrefix(std::string_view text) {
  size_t length = 0;
  uint64_t word;
  while (length + sizeof(word) <= text.size()) {
    std::memcpy(&word, text.data() + length, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
    length += sizeof(word);
  }
  return length;
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const Lead lead = LeadOf(ByteAt(text, 0));
  if (lead.length == 0) return {Utf8Step::kInvalid, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::kTruncated, i};
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xbf;
    if (ByteAt(text, i) < min || ByteAt(text, i) > max) return {Utf8Step::kInvalid, i};
  }
  return {Utf8Step::kCharacter, lead.length};
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    position += AsciiPrefix(text.substr(position));
    if (position == text.size()) break;
    const Utf8Step step = NextUtf8(text.substr(position));
    if (step.kind != Utf8Step::kCharacter) return position;
    position += step.length;
  }
  return text.npos;
}

Utf8Character FirstCharacter(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  const size_t length = LeadOf(lead).length;
  if (length <= 1) return {lead, 1};
  char32_t code_point = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (ByteAt(text, i) & 0x3fu);
  return {code_point, length};
}

Utf8Character LastCharacter(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  return FirstCharacter(text.substr(start));
}

char32_t NextCodePoint(std::string_view text, size_t* position) {
  const Utf8Character character = FirstCharacter(text.substr(*position));
  *position += character.length;
  return character.code_point;
}

char32_t PreviousCodePoint(std::string_view text, size_t* position) {
  const Utf8Character character = LastCharacter(text.substr(0, *position));
  *position -= character.length;
  return character.code_point;
}

size_t CountCodePoints(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) {
    ++offset;
    while (offset < text.size() && IsContinuation(text[offset])) ++offset;
  }
  return offset;
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return text.npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

void AppendUtf8(char32_t code_point, std::string* text) {
  const auto tail = [&](int shift) {
    text->push_back(static_cast<char>(0x80u | (code_point >> shift & 0x3fu)));
  };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xc0u | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xe0u | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text->push_back(static_cast<char>(0xf0u | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void Utf8Repair::Append(std::string_view bytes, std::string* out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined += bytes;
    bytes = joined;
  }
  held_.clear();
  while (!bytes.empty()) {
    const Utf8Step step = NextUtf8(bytes);
    switch (step.kind) {
      case Utf8Step::kCharacter:
        out->append(bytes.substr(0, step.length));
        break;
      case Utf8Step::kInvalid:
        AppendReplacement(step.length, out);
        break;
      case Utf8Step::kTruncated:
        held_ = bytes;
        break;
    }
    bytes.remove_prefix(step.length);
  }
}

void Utf8Repair::Flush(std::string* out) {
  // A truncated character is one maximal subpart.
  if (!held_.empty()) AppendReplacement(held_.size(), out);
  held_.clear();
}

void Utf8Repair::AppendReplacement(size_t bytes, std::string* out) const {
  const size_t count = unit_ == Unit::kByte ? bytes : 1;
  for (size_t i = 0; i < count; ++i) out->append(kReplacement);
}

}  // namespace tlm
