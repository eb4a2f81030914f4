// Byte-pair encoding (Sennrich et al. 2016, section 3.2) over bytes or characters.
#ifndef TLM_MODEL_TOKENIZER_BPE_H_
#define TLM_MODEL_TOKENIZER_BPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {

// The two tokens that a merge joins, in the vocabulary's notation.
using BpeMerge = std::pair<std::string, std::string>;

// Immutable, so any thread may use it.
class Bpe {
 public:
  // The symbols that a word consists of at first.
  enum class Symbols {
    kBytes,       // "byte-level"
    kCharacters,  // like SentencePiece
  };
  struct Options {
    Symbols symbols = Symbols::kBytes;
    // For kCharacters: a character without a token becomes the tokens of its bytes, "<0x00>" to
    // "<0xFF>", if all of them are in the vocabulary.
    bool byte_fallback = false;
    // A symbol that has no token becomes this one; with `fuse_unknown`, neighbours become one.
    std::optional<int32_t> unknown_id;
    bool fuse_unknown = false;
    // A word in the vocabulary is one token; merges are not applied.
    bool ignore_merges = false;
  };
  // `ranks[i]` is the rank of merges[i], by default i; the merge of the lowest rank is applied
  // first. Of two equal merges the later counts. INVALID_ARGUMENT names a merge of which a part or
  // the result is no token. `vocabulary` must outlive the result.
  static absl::StatusOr<Bpe> Create(const Vocabulary* vocabulary,
                                    const std::vector<BpeMerge>& merges, Options options,
                                    std::span<const uint32_t> ranks = {});

  // Appends the tokens of one pre-token, well-formed UTF-8 of less than 2^31 bytes: starting from
  // single symbols, the adjacent pair of the lowest rank (of equal ones the leftmost) is joined
  // until no merge names an adjacent pair. Takes n log n steps for n bytes. INVALID_ARGUMENT when a
  // symbol has no token and there is no unknown token.
  absl::Status Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    uint32_t rank;  // kNoMerge: the pair is not joined
    int32_t id;
  };
  static constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();

  class LongWord;

  Bpe(const Vocabulary* vocabulary, Options options);
  Merge FindMerge(int32_t left, int32_t right) const;
  absl::StatusOr<size_t> ToSymbols(std::string_view word, int32_t* ids) const;
  size_t AppendFallback(std::string_view symbol, int32_t* ids) const;
  absl::Status EncodeShort(std::string_view word, std::vector<int32_t>* ids) const;
  absl::Status EncodeLong(std::string_view word, std::vector<int32_t>* ids) const;

  const Vocabulary* vocabulary_;
  Options options_;
  std::array<int32_t, 256> byte_ids_;              // ids of single bytes; -1: no token
  std::array<int32_t, 256> fallback_ids_;          // ids of "<0x00>" ...; -1: no token
  absl::flat_hash_map<uint64_t, Merge> merge_of_;  // by left id << 32 | right id
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_BPE_H_
