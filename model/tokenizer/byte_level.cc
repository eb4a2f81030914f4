#include "model/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr char32_t kEnd = 0x144;  // one past the last character of the alphabet

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  constexpr Alphabet() {
    char32_t next = 0x100;
    for (int16_t& byte : byte_of) byte = -1;
    for (int byte = 0; byte < 256; ++byte) {
      character_of[byte] = StandsForItself(byte) ? byte : next++;
      byte_of[character_of[byte]] = static_cast<int16_t>(byte);
    }
  }
  std::array<char32_t, 256> character_of{};
  std::array<int16_t, kEnd> byte_of{};  // -1: not in the alphabet
};

constexpr Alphabet kAlphabet;

}  // namespace

std::optional<std::string> BytesFromByteLevel(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    if (character.code_point >= kEnd || kAlphabet.byte_of[character.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[character.code_point]));
    text.remove_prefix(character.length);
  }
  return bytes;
}

std::string ByteLevelFromBytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char byte : bytes) {
    AppendUtf8(kAlphabet.character_of[static_cast<uint8_t>(byte)], &text);
  }
  return text;
}

}  // namespace tlm
