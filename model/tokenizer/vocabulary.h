// The strings of tokens by their ids, and the ids by their strings.
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

// Ids are in [0, kMaxTokenIds).
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 24;

// Returns the name of a byte's token, "<0x0A>". Characters without a token are written with these.
std::string ByteTokenName(uint8_t byte);

// Returns the byte of a token of such a name, with digits of either case; nullopt for other names.
std::optional<uint8_t> ByteOfTokenName(std::string_view name);

struct VocabularyEntry {
  int32_t id = 0;  // in [0, kMaxTokenIds)
  std::string bytes;
  bool is_searchable = true;  // Find() returns it: true for tokens of the model, false for added
                              // ones
};

// Move-only. Immutable, so any thread may read.
class Vocabulary {
 public:
  // Creates an empty vocabulary.
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // INVALID_ARGUMENT when two entries share an id, or two searchable ones their bytes.
  static absl::StatusOr<Vocabulary> Create(std::vector<VocabularyEntry> entries);

  // Returns one past the largest id.
  int32_t size() const { return begins_.empty() ? 0 : static_cast<int32_t>(begins_.size()) - 1; }
  // Returns the bytes of a token; empty for an id without a token, in range or not. Valid as long
  // as the vocabulary.
  std::string_view Bytes(int32_t id) const;
  // True if both have the same ids and bytes.
  bool HasBytesOf(const Vocabulary& other) const {
    return begins_ == other.begins_ && bytes_ == other.bytes_;
  }
  // Returns the searchable token with exactly these bytes.
  std::optional<int32_t> Find(std::string_view bytes) const;

 private:
  // The arrays of a vocabulary. They keep their addresses when it moves.
  struct Texts {
    const char* bytes = nullptr;
    const uint32_t* begins = nullptr;

    std::string_view operator()(int32_t id) const {
      return {bytes + begins[id], begins[id + 1] - begins[id]};
    }
    std::string_view operator()(std::string_view text) const { return text; }
  };
  // Hash and compare ids by their bytes: an id takes 5 bytes, a view of its bytes 25.
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

  std::vector<char> bytes_;       // bytes of all tokens, in the order of their ids
  std::vector<uint32_t> begins_;  // begin of token i in bytes_; one more at the end
  absl::flat_hash_set<int32_t, HashOfBytes, EqualBytes> searchable_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_VOCABULARY_H_
