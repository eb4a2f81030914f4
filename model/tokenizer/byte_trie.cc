#include "model/tokenizer/byte_trie.h"

#include "model/base/errors.h"

namespace tlm {

int32_t& ByteTrie::operator[](std::string_view key) {
  TLM_CHECK(!key.empty());
  begins_key_[static_cast<uint8_t>(key[0])] = true;
  uint32_t node = kRoot;
  for (const char byte : key) {
    const auto [edge, added] =
        child_of_.try_emplace(EdgeKey(node, byte), static_cast<uint32_t>(value_at_.size()));
    if (added) value_at_.push_back(kNone);
    node = edge->second;
  }
  return value_at_[node];
}

}  // namespace tlm
