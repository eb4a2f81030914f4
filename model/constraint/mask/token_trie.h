// The texts of a vocabulary, in the order in which masks walk them.
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

// In a bitmap of tokens: bit id % 64 of word id / 64.
inline void SetTokenBit(int32_t id, std::span<uint64_t> words) {
  words[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

// Immutable, so any thread may use it. Tokens are parted by the characters of their texts, and each
// part is a trie of its own: where an automaton admits all texts of an alphabet, the tokens of that
// part need no walk.
class TokenTrie {
 public:
  // Each holds the one before it. What is plain needs no escape within a string of JSON.
  enum Alphabet {
    kLower,    // a-z
    kLetters,  // A-Z
    kWord,     // 0-9 _
    kAscii,    // plain ASCII: 20-7E without " and backslash
    kText,     // all plain characters above it, in well-formed UTF-8
    kBytes,    // all bytes
  };
  static constexpr size_t kAlphabets = kBytes + 1;

  // In preorder: the nodes below node i are those in [i + 1, nodes[i].end).
  struct Node {
    uint32_t end;
    uint32_t tokens;  // those that end here: order()[nodes[i].tokens .. nodes[i + 1].tokens)
    uint16_t depth;   // length of the path in bytes
    uint8_t byte;     // its last one
  };
  static constexpr uint32_t kNoNode = 0xFFFFFFFF;

  // The tokens whose texts are of this alphabet and of none before it.
  struct Part {
    uint32_t begin = 0, end = 0;        // in nodes()
    ByteSet first;                      // the bytes that texts begin with
    std::array<uint32_t, 256> child{};  // the node of a first byte, or kNoNode
    size_t longest = 0;                 // characters of the longest text; of kBytes bytes
    std::vector<int32_t> long_tokens;   // those of more than kMaxLength characters
  };
  // For texts of an alphabet the length up to which `UpTo` tells them apart.
  static constexpr size_t kMaxLength = 16;

  // What follows a quote in a token. Those of all tokens are a trie, too, in which each ends once.
  struct Tail {
    int32_t token;
    uint32_t tail;  // its number: the node in tails(), the empty tail 0
  };

  // `tokenizer` outlives this. The text of a special token is kSpecialTokenMark and its name. Ends,
  // tokens with that byte, and such as have no text, or one of more than kMaxTextBytes, are never
  // inside of a text.
  static std::shared_ptr<const TokenTrie> Build(const Tokenizer& tokenizer,
                                                std::span<const int32_t> end_tokens);
  // Token i has the i-th text; those without text are never inside of one. Without Encode().
  static std::shared_ptr<const TokenTrie> Build(std::span<const std::string> texts,
                                                std::span<const int32_t> end_tokens);
  static constexpr size_t kMaxTextBytes = 4096;

  // Ids lie below it.
  int32_t vocab_size() const { return static_cast<int32_t>(is_own_.size()); }
  // Of a bitmap.
  size_t words() const { return (is_own_.size() + 63) / 64; }
  // What a token adds to a text; empty for tokens that are never inside of one.
  std::string_view Text(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return {};
    if (!is_own_[static_cast<size_t>(id)]) return tokenizer_->TokenBytes(id);
    const auto own = own_texts_.find(id);
    return own == own_texts_.end() ? std::string_view() : own->second;
  }
  std::span<const int32_t> end_tokens() const { return end_tokens_; }
  // Of tokens that stand there; texts at the beginning may lack a space (TextPosition).
  const TokenTrie& At(TextPosition position) const {
    return position == TextPosition::kBeginsText && beginning_ != nullptr ? *beginning_ : *this;
  }
  // How the tokenizer writes a text within others; empty if it cannot say.
  std::vector<int32_t> Encode(std::string_view text) const;

  const std::vector<Node>& nodes() const { return nodes_; }  // one more at the end
  const std::vector<int32_t>& order() const { return order_; }
  const Part& part(size_t alphabet) const { return parts_[alphabet]; }
  // The bitmap of the tokens whose texts are of the alphabet or of those before it, and have at
  // most so many characters, at least 1; more than kMaxLength are any number. Not of kBytes.
  std::span<const uint64_t> UpTo(size_t alphabet, size_t length) const {
    const size_t row = std::min(length, kMaxLength + 1) - 1;
    return std::span(up_to_).subspan((alphabet * (kMaxLength + 1) + row) * words(), words());
  }
  // Nodes as those of nodes(), below an empty one; `tokens` is not used.
  const std::vector<Node>& tails() const { return tails_; }
  // Of the tokens at and below a node of kBytes whose byte is a quote, what follows that quote.
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
  std::vector<bool> is_own_;  // by token: whose text is not what the tokenizer has
  absl::flat_hash_map<int32_t, std::string> own_texts_;  // without empty ones
  std::vector<int32_t> end_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> order_;
  std::array<Part, kAlphabets> parts_;
  std::vector<uint64_t> up_to_;
  std::vector<Node> tails_;
  // Numbers of tails by token and quote in it, in the order of order(), for kBytes.
  std::vector<uint32_t> tail_numbers_;
  std::vector<uint32_t> tails_begin_;           // of the tokens
  std::shared_ptr<const TokenTrie> beginning_;  // if it differs
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_TOKEN_TRIE_H_
