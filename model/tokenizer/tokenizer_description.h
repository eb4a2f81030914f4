// The content of a tokenizer's file as plain structs, from which a tokenizer is built.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_DESCRIPTION_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"

namespace tlm {

// The member "model", with its strings as in the file.
struct ModelDescription {
  enum Kind { kBpe, kUnigram };

  Kind kind = kBpe;
  std::vector<std::pair<std::string, int32_t>> vocab;
  bool byte_fallback = false;

  // These are for BPE:
  std::vector<std::pair<std::string, std::string>> merges;  // in the order of their rank
  std::vector<uint32_t> merge_ranks;  // rank of merges[i]; empty: i. Of equal ranks the leftmost is
                                      // first
  bool ignore_merges = false;
  bool fuse_unknown = false;
  std::string unknown_token;  // empty: there is no unknown token

  // These are for Unigram:
  std::vector<double> scores;  // score of vocab[i], whose id is i
  std::optional<int32_t> unknown_id;
};

struct PreTokenizerDescription {
  std::vector<PreTokenizerStep> steps;
  bool is_byte_level = false;  // the model sees bytes, written in the byte-level alphabet
};

// The tokens that "post_processor" puts around the tokens of a text.
struct SpecialTokenFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

struct TokenizerDescription {
  ModelDescription model;
  std::vector<AddedToken> added_tokens;  // tokens without content are left out
  std::vector<NormalizerStep> normalizer;
  PreTokenizerDescription pre_tokenizer;
  SpecialTokenFrame frame;
  std::vector<TokenDecoderStep> decoder;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_DESCRIPTION_H_
