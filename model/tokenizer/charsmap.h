// SentencePiece's table of replacements for characters, "precompiled_charsmap" of tokenizer.json.
#ifndef TLM_MODEL_TOKENIZER_CHARSMAP_H_
#define TLM_MODEL_TOKENIZER_CHARSMAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

// Immutable, so any thread may use it.
class Charsmap {
 public:
  // The limit of a replacement's length.
  static constexpr size_t kMaxReplacementBytes = 64;

  // Reads the table from base64: the size of a double-array trie (Darts-clone's layout) in bytes,
  // its units, both little-endian in 32 bits, and the replacements, with a 0 after each.
  // INVALID_ARGUMENT when it is malformed, has more than 16 MiB, or has a replacement that is too
  // long or not UTF-8.
  static absl::StatusOr<Charsmap> Create(std::string_view base64);

  // Takes and returns well-formed UTF-8, and applies the table like Hugging Face's tokenizers. An
  // extended grapheme cluster of less than 6 bytes is replaced by the replacement of the shortest
  // key that it begins with. In other clusters, and in clusters without such a key, each character
  // is replaced on its own. Stops as soon as the result is longer than `max_bytes`.
  std::string Apply(std::string_view text, size_t max_bytes) const;

 private:
  Charsmap(std::vector<uint32_t> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}

  std::optional<std::string_view> Find(std::string_view text) const;
  void AppendCluster(std::string_view cluster, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // the last byte is 0
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_CHARSMAP_H_
