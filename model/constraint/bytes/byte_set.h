// Sets and classes of bytes.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_BYTE_SET_H_
#define TLM_MODEL_CONSTRAINT_BYTES_BYTE_SET_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tlm {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet Of(uint8_t byte) {
    ByteSet set;
    set.Add(byte);
    return set;
  }
  // The bytes from `first` to `last`, both included.
  static constexpr ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet All() { return Range(0, 255); }

  constexpr void Add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  constexpr bool Has(uint8_t byte) const { return (words_[byte >> 6] >> (byte & 63) & 1) != 0; }
  // Bit b % 64 of word b / 64 is byte b.
  constexpr const std::array<uint64_t, 4>& words() const { return words_; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  // The smallest byte; 0 for the empty set.
  constexpr uint8_t First() const {
    for (size_t i = 0; i < 4; ++i) {
      if (words_[i] != 0)
        return static_cast<uint8_t>(64 * i) + static_cast<uint8_t>(std::countr_zero(words_[i]));
    }
    return 0;
  }
  constexpr int size() const {
    int bytes = 0;
    for (const uint64_t word : words_) bytes += std::popcount(word);
    return bytes;
  }

  friend constexpr ByteSet operator|(ByteSet a, const ByteSet& b) {
    for (size_t i = 0; i < 4; ++i) a.words_[i] |= b.words_[i];
    return a;
  }
  friend constexpr ByteSet operator&(ByteSet a, const ByteSet& b) {
    for (size_t i = 0; i < 4; ++i) a.words_[i] &= b.words_[i];
    return a;
  }
  friend constexpr ByteSet operator~(ByteSet a) {
    for (uint64_t& word : a.words_) word = ~word;
    return a;
  }
  friend constexpr auto operator<=>(const ByteSet&, const ByteSet&) = default;

 private:
  std::array<uint64_t, 4> words_{};
};

// A partition of the bytes: two bytes are in one class if every set given to SplitBy has both or
// neither. Classes are numbered from 0.
struct ByteClasses {
  std::array<uint8_t, 256> class_of{};  // class by byte
  std::vector<uint8_t> examples{0};     // smallest byte by class

  // Splits each class where `set` divides it.
  void SplitBy(const ByteSet& set) {
    std::array<std::array<int, 2>, 256> parts;
    for (auto& part : parts) part = {-1, -1};
    examples.clear();
    for (size_t byte = 0; byte < 256; ++byte) {
      int& part = parts[class_of[byte]][set.Has(static_cast<uint8_t>(byte)) ? 1 : 0];
      if (part < 0) {
        part = static_cast<int>(examples.size());
        examples.push_back(static_cast<uint8_t>(byte));
      }
      class_of[byte] = static_cast<uint8_t>(part);
    }
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_BYTE_SET_H_
