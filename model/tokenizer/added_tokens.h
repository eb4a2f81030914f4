// Tokens added to the model's own vocabulary. They are found in text before normalisation.
#ifndef TLM_MODEL_TOKENIZER_ADDED_TOKENS_H_
#define TLM_MODEL_TOKENIZER_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/tokenizer/byte_trie.h"

namespace tlm {

// An added token as tokenizer.json describes it.
struct AddedToken {
  int32_t id = 0;
  std::string content;       // UTF-8, not empty
  bool special = false;      // a control token: decoding may leave it out
  bool single_word = false;  // matches only where no word character touches it
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;       // the match includes the white space after it
  bool normalized = false;   // searched for in normalised text, after the others
};

// Finds tokens in text: the leftmost match first; of matches that begin together, the longest.
// Immutable, so any thread may use it.
class AddedTokenMatcher {
 public:
  // Searches for `contents[i]` to find `tokens[i]`: the token's content, or its normalised content.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  struct Piece {
    std::optional<int32_t> id;  // a token, or
    std::string_view text;      // text between tokens, not empty
  };
  using Sink = absl::FunctionRef<absl::Status(const Piece&)>;
  // Calls `sink` with every piece of well-formed UTF-8 in order. Stops at the first error of `sink`
  // and returns it. With `with_special` false, special tokens are part of the text between tokens.
  absl::Status Split(std::string_view text, Sink sink, bool with_special = true) const;

 private:
  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };

  std::optional<Match> FindNext(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  ByteTrie index_of_;  // indices into tokens_, by content
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_ADDED_TOKENS_H_
