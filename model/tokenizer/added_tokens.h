// Tokens added to the model's own vocabulary, found in text before normalization.
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

// As tokenizer.json describes one.
struct AddedToken {
  int32_t id = 0;
  std::string content;       // UTF-8, not empty
  bool special = false;      // a control token: decoding may leave it out
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space behind it along
  bool normalized = false;   // searched for in normalised text, after the others
};

// Finds tokens in text: the leftmost match first, of those that begin together the longest.
// Immutable, so any thread may use it.
class AddedTokenMatcher {
 public:
  // `contents[i]` is what to search for as `tokens[i]`: its content, or that normalised.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  struct Piece {
    std::optional<int32_t> id;  // a token,
    std::string_view text;      // or text between tokens, not empty
  };
  using Sink = absl::FunctionRef<absl::Status(const Piece&)>;
  // Calls `sink` with every piece of well-formed UTF-8 in order. Stops at the first error of `sink`
  // and returns it.
  // `with_special` false leaves special tokens as they stand, as if they were other text.
  absl::Status Split(std::string_view text, Sink sink, bool with_special = true) const;

 private:
  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
  };

  std::optional<Match> FindNext(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  ByteTrie index_of_;  // into tokens_, by content
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_ADDED_TOKENS_H_
