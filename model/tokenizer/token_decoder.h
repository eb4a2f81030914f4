// Tokens to text: the "decoder" of tokenizer.json.
//
// Most of a decoder looks at one token at a time and is applied to the whole vocabulary once. What
// depends on the position in a text is done where tokens are joined (StreamDecoder):
//
//   tokens    ▁Hello   ▁    <0xF0> <0x9F> <0x98> <0x80>
//   texts     " Hello" " "  F0     9F     98     80
//   joined    "Hello 😀"    the first space gone
#ifndef TLM_MODEL_TOKENIZER_TOKEN_DECODER_H_
#define TLM_MODEL_TOKENIZER_TOKEN_DECODER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/regex.h"

namespace tlm {

// One step, named as tokenizer.json names it.
struct TokenDecoderStep {
  enum Kind {
    kByteLevel,     // a token in the byte-level alphabet stands for bytes
    kByteFallback,  // so does one named "<0x0A>"
    kReplace,       // every match of `pattern` becomes `content`
    kMetaspace,     // every `content` becomes a space, in the first token of a text nothing
    kFuse,          // all tokens become one
    kStrip,  // takes up to `start` times `content` off the front of a token, `stop` off its end
  };
  Kind kind = kFuse;
  std::string pattern;      // of kReplace: Oniguruma syntax
  bool is_literal = false;  // the pattern is plain text instead
  std::string content;      // of kMetaspace and kStrip one character
  bool prepends = true;     // of kMetaspace: the first token is special
  size_t start = 0;
  size_t stop = 0;
};

// Immutable, so any thread may use it.
class TokenDecoder {
 public:
  static constexpr size_t kMaxGrowth = 8;
  static constexpr size_t kMaxGrowthBytes = 64;

  // INVALID_ARGUMENT and UNIMPLEMENTED as Regex::Compile gives them; UNIMPLEMENTED, naming the
  // step, for orders of steps in which a token's text would depend on tokens far away.
  static absl::StatusOr<TokenDecoder> Create(const std::vector<TokenDecoderStep>& steps);

  struct TokenText {
    std::string text;
    bool is_byte = false;  // one byte that need not be a character
  };
  // The text of a token in the middle of others; `is_first` for the one a text begins with.
  // RESOURCE_EXHAUSTED as RegexMatcher::Find gives it, and for a token of n bytes when its text has
  // more than kMaxGrowth * n + kMaxGrowthBytes.
  absl::StatusOr<TokenText> Decode(std::string_view token, bool is_first) const;

  // Whether Decode with `is_first` may differ.
  bool first_token_is_special() const { return first_token_is_special_; }
  // Whether bytes become characters only with the bytes of neighbouring byte tokens, and each byte
  // that becomes none is one U+FFFD. Else the bytes of all tokens are joined, and each maximal
  // subpart is one.
  bool has_byte_tokens() const { return has_byte_tokens_; }
  // What is taken off the front of a text, at most that many times.
  const std::string& stripped() const { return stripped_; }
  size_t max_stripped() const { return max_stripped_; }

 private:
  struct Step {
    TokenDecoderStep options;
    std::optional<Regex> regex;  // of kReplace
  };

  absl::Status Add(const TokenDecoderStep& step);
  absl::Status AddAfterFuse(const TokenDecoderStep& step);

  std::vector<Step> steps_;  // those that look at one token
  bool first_token_is_special_ = false;
  bool has_byte_tokens_ = false;
  bool is_fused_ = false;
  std::string stripped_;
  size_t max_stripped_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKEN_DECODER_H_
