// Strings with a number each, found as prefixes of text.
#ifndef TLM_MODEL_TOKENIZER_BYTE_TRIE_H_
#define TLM_MODEL_TOKENIZER_BYTE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tlm {

// Immutable once filled; any thread may use it from then on.
class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : value_at_{kNone} {}

  // Returns the value of `key`, which is not empty, for setting or changing. It is kNone when the
  // key is new. Valid until the next call.
  int32_t& operator[](std::string_view key);

  // True if a key begins with this byte.
  bool Begins(char byte) const { return begins_key_[static_cast<uint8_t>(byte)]; }

  // Calls `found(length, value)` for every key that `text` begins with, shortest first.
  template <typename Found>
  void FindPrefixes(std::string_view text, Found&& found) const {
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = child_of_.find(EdgeKey(node, text[i]));
      if (edge == child_of_.end()) return;
      node = edge->second;
      if (value_at_[node] != kNone) found(i + 1, value_at_[node]);
    }
  }

 private:
  static constexpr uint32_t kRoot = 0;

  static uint64_t EdgeKey(uint32_t node, char byte) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
  }

  std::vector<int32_t> value_at_;                     // by node
  absl::flat_hash_map<uint64_t, uint32_t> child_of_;  // by EdgeKey
  std::array<bool, 256> begins_key_{};
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_BYTE_TRIE_H_
