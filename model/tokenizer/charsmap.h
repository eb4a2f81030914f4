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
  // No replacement has more bytes.
  static constexpr size_t kMaxReplacementBytes = 64;

  // The table in base64: the size of a double-array trie (Darts-clone's layout) in bytes, its
  // units, both little-endian in 32 bits, and the replacements, each with a 0 behind.
  // INVALID_ARGUMENT when it is malformed, has more than 16 MiB, or has a replacement that is too
  // long or not UTF-8.
  static absl::StatusOr<Charsmap> Create(std::string_view base64);

  // Well-formed UTF-8 in and out, as Hugging Face's tokenizers apply the table: each extended
  // grapheme cluster of less than 6 bytes is replaced as a whole by what the shortest key that it
  // begins with stands for; of other clusters, and of those without a key, each character. Stops
  // as soon as the result is longer than `max_bytes`.
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
