// Strings of tokens, by their ids, and back.
#ifndef TLM_MODEL_TOKENIZER_VOCABULARY_H_
#define TLM_MODEL_TOKENIZER_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"

namespace tlm {

// Ids lie in [0, kMaxTokenIds).
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 24;

// The token that stands for a single byte where characters without one are written in bytes:
// "<0x0A>".
std::string ByteTokenName(uint8_t byte);

// The byte of a token of such a name, its digits of either case; none for other names.
std::optional<uint8_t> ByteOfTokenName(std::string_view name);

struct VocabularyEntry {
  int32_t id = 0;  // in [0, kMaxTokenIds)
  std::string bytes;
  bool is_searchable = true;  // Find() returns it: tokens of the model, not those added to it
};

// Move-only. Immutable, so any thread may read.
class Vocabulary {
 public:
  // No tokens.
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // INVALID_ARGUMENT when two entries share an id, or two searchable ones their bytes.
  static absl::StatusOr<Vocabulary> Create(std::vector<VocabularyEntry> entries);

  // One past the largest id.
  int32_t size() const { return begins_.empty() ? 0 : static_cast<int32_t>(begins_.size()) - 1; }
  // The bytes of a token; empty for an id without a token, in range or not.
  // Valid as long as the vocabulary.
  std::string_view Bytes(int32_t id) const;
  // Whether both have the same ids and bytes.
  bool HasBytesOf(const Vocabulary& other) const {
    return begins_ == other.begins_ && bytes_ == other.bytes_;
  }
  // The searchable token that stands for exactly these bytes.
  std::optional<int32_t> Find(std::string_view bytes) const;

 private:
  // Arrays of a vocabulary, which stay where they are when it moves.
  struct Texts {
    const char* bytes = nullptr;
    const uint32_t* begins = nullptr;

    std::string_view operator()(int32_t id) const {
      return {bytes + begins[id], begins[id + 1] - begins[id]};
    }
    std::string_view operator()(std::string_view text) const { return text; }
  };
  // Of ids, by what they stand for: an id takes 5 bytes, a view of its bytes 25.
  struct HashOfBytes {
    using is_transparent = void;
    Texts texts;
    size_t operator()(auto key) const { return absl::HashOf(texts(key)); }
  };
  struct EqualBytes {
    using is_transparent = void;
    Texts texts;
    bool operator()(auto a, auto b) const { return texts(a) == texts(b); }
  };

  std::vector<char> bytes_;       // of all tokens, in the order of their ids
  std::vector<uint32_t> begins_;  // of token i in bytes_; one more at the end
  absl::flat_hash_set<int32_t, HashOfBytes, EqualBytes> searchable_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_VOCABULARY_H_
