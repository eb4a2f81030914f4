// The unigram language model of SentencePiece (Kudo 2018, section 3.2).
#ifndef TLM_MODEL_TOKENIZER_UNIGRAM_H_
#define TLM_MODEL_TOKENIZER_UNIGRAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {

// Immutable, so any thread may use it.
class Unigram {
 public:
  // The limit of a piece's length: pieces as long as this are compared at every byte of a text.
  static constexpr size_t kMaxPieceBytes = 1024;
  // The cost of a character without a piece, relative to the least likely piece.
  static constexpr double kUnknownPenalty = 10.0;

  struct Options {
    std::optional<int32_t> unknown_id;
    // Text without a piece becomes the tokens of its bytes, "<0x00>" to "<0xFF>", if all of them
    // are in the vocabulary.
    bool byte_fallback = false;
  };

  // The pieces are the tokens from 0 on that have scores, the logarithms of their probabilities.
  // INVALID_ARGUMENT for pieces that are empty or too long, for scores that are not finite, and for
  // an unknown id without a score. `vocabulary` must outlive the result.
  static absl::StatusOr<Unigram> Create(const Vocabulary* vocabulary, std::vector<double> scores,
                                        Options options);

  // Appends the tokens of one pre-token, well-formed UTF-8: the likeliest division; of equally
  // likely ones, the one with the longest last piece. Neighbouring characters without a piece are
  // one unknown token. Takes n steps for n bytes. INVALID_ARGUMENT when an unknown token is needed
  // and the vocabulary has none.
  absl::Status Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  // The last piece of the best division of the text up to a byte.
  struct Ending {
    static constexpr size_t kNowhere = static_cast<size_t>(-1);

    size_t begin = kNowhere;
    int32_t id = 0;
    double score = 0;  // score of the whole division
  };

  Unigram(const Vocabulary* vocabulary, std::vector<double> scores, Options options);
  absl::StatusOr<std::vector<Ending>> FindEndings(std::string_view word) const;
  absl::Status AppendIds(std::string_view text, std::vector<int32_t>* ids) const;

  const Vocabulary* vocabulary_;
  Options options_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  ByteTrie id_of_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_UNIGRAM_H_
