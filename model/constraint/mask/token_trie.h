// The texts of a vocabulary as a trie, which MaskWalker walks.
#ifndef TLM_MODEL_CONSTRAINT_MASK_TOKEN_TRIE_H_
#define TLM_MODEL_CONSTRAINT_MASK_TOKEN_TRIE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "model/constraint/bytes/byte_set.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm {

// Precedes the text of a special token in the texts that recognizers read: "\xFF<|channel|>". No
// UTF-8 text has this byte.
inline constexpr char kSpecialTokenMark = '\xFF';
inline bool IsSpecialMark(char byte) { return byte == kSpecialTokenMark; }

// Sets bit id % 64 of word id / 64.
inline void SetTokenBit(int32_t id, std::span<uint64_t> words) {
  words[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

// Immutable, so thread-safe. The tokens are divided by the alphabet of their texts, and each part
// has a trie of its own: if an automaton allows all texts of an alphabet, no walk of that part is
// needed.
class TokenTrie {
 public:
  // Each alphabet contains the alphabets before it. A plain character needs no escape in a JSON
  // string.
  enum Alphabet {
    kLower,    // a-z
    kLetters,  // A-Z
    kWord,     // 0-9 _
    kAscii,    // plain ASCII: 20-7E without " and backslash
    kText,     // and all characters above U+007F, in well-formed UTF-8
    kBytes,    // all bytes
  };
  static constexpr size_t kAlphabets = kBytes + 1;

  // In preorder: the nodes below node i are those in [i + 1, nodes[i].end).
  struct Node {
    uint32_t end;
    uint32_t tokens;  // that end here: order()[nodes[i].tokens .. nodes[i + 1].tokens)
    uint16_t depth;   // length of the path from the root, in bytes
    uint8_t byte;     // last byte of the path
  };
  static constexpr uint32_t kNoNode = 0xFFFFFFFF;

  // The tokens whose smallest alphabet is this one.
  struct Part {
    uint32_t begin = 0, end = 0;        // indices in nodes()
    ByteSet first;                      // first bytes of the texts
    std::array<uint32_t, 256> child{};  // node by first byte, or kNoNode
    size_t longest = 0;                 // length of the longest text in characters (kBytes: bytes)
    std::vector<int32_t> long_tokens;   // tokens of more than kMaxLength characters
  };
  // `UpTo` distinguishes lengths up to this one.
  static constexpr size_t kMaxLength = 16;

  // A tail is the rest of a token's text after a quote. The different tails of all tokens form a
  // trie of their own, tails().
  struct Tail {
    int32_t token;
    uint32_t tail;  // node in tails(); 0: the empty tail
  };

  // `tokenizer` must outlive the trie. The text of a special token is kSpecialTokenMark and its
  // name. Never allowed within a constraint, so without a text, are: end tokens, other tokens that
  // have the byte kSpecialTokenMark, and tokens whose text is empty or longer than kMaxTextBytes.
  static std::shared_ptr<const TokenTrie> Build(const Tokenizer& tokenizer,
                                                std::span<const int32_t> end_tokens);
  // Token i has the i-th text. Encode() returns nothing.
  static std::shared_ptr<const TokenTrie> Build(std::span<const std::string> texts,
                                                std::span<const int32_t> end_tokens);
  static constexpr size_t kMaxTextBytes = 4096;

  // Ids are in [0, vocab_size()).
  int32_t vocab_size() const { return static_cast<int32_t>(is_own_.size()); }
  // Words of a bitmap of the vocabulary.
  size_t words() const { return (is_own_.size() + 63) / 64; }
  // The bytes that a token appends to a text; empty for tokens that are never allowed.
  std::string_view Text(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return {};
    if (!is_own_[static_cast<size_t>(id)]) return tokenizer_->TokenBytes(id);
    const auto own = own_texts_.find(id);
    return own == own_texts_.end() ? std::string_view() : own->second;
  }
  std::span<const int32_t> end_tokens() const { return end_tokens_; }
  // The trie for tokens at this position: at the beginning of a text some tokens lack their space.
  const TokenTrie& At(TextPosition position) const {
    return position == TextPosition::kBeginsText && beginning_ != nullptr ? *beginning_ : *this;
  }
  // The tokens of a text within another text; empty if the tokenizer cannot write it on its own.
  std::vector<int32_t> Encode(std::string_view text) const;

  // Preorder, then a node that marks the end.
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& order() const { return order_; }
  const Part& part(size_t alphabet) const { return parts_[alphabet]; }
  // The bitmap of the tokens whose texts are in the alphabet and have at most `length` >= 1
  // characters. A length above kMaxLength means any length. The alphabet must not be kBytes.
  std::span<const uint64_t> UpTo(size_t alphabet, size_t length) const {
    const size_t row = std::min(length, kMaxLength + 1) - 1;
    return std::span(up_to_).subspan((alphabet * (kMaxLength + 1) + row) * words(), words());
  }
  // The trie of tails in preorder. Node 0 is the root, and Node::tokens is unused.
  const std::vector<Node>& tails() const { return tails_; }
  // Appends the tails of the tokens at and below a node of kBytes whose byte is a quote: the rest
  // of their texts after that quote.
  void AppendTails(uint32_t node, std::vector<Tail>& to) const;
  size_t bytes() const;

 private:
  // `tokenizer` may be null.
  TokenTrie(const Tokenizer* tokenizer, size_t tokens,
            absl::FunctionRef<std::string(int32_t)> text_of);
  void BuildParts();
  void BuildPart(Alphabet alphabet, std::vector<int32_t> tokens);
  void BuildTails();
  void BuildBitmaps(std::span<const uint8_t> alphabets, std::span<const uint16_t> lengths);

  const Tokenizer* tokenizer_;
  std::vector<bool> is_own_;  // by token: its text differs from Tokenizer::TokenBytes
  absl::flat_hash_map<int32_t, std::string> own_texts_;  // such texts, unless they are empty
  std::vector<int32_t> end_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> order_;
  std::array<Part, kAlphabets> parts_;
  std::vector<uint64_t> up_to_;
  std::vector<Node> tails_;
  // For each token of kBytes in the order of order(), and each quote in it: the node in tails_.
  std::vector<uint32_t> tail_numbers_;
  std::vector<uint32_t> tails_begin_;           // first index in tail_numbers_, by token of kBytes
  std::shared_ptr<const TokenTrie> beginning_;  // At(kBeginsText); null if it is the same
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_TOKEN_TRIE_H_
