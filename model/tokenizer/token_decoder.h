// Turns tokens into text: the "decoder" of tokenizer.json.
//
// Most of a decoder looks at one token at a time and is applied to the whole vocabulary once. The
// part that depends on the position in a text is done where tokens are joined (StreamDecoder):
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

// One step, named as in tokenizer.json.
struct TokenDecoderStep {
  enum Kind {
    kByteLevel,     // a token in the byte-level alphabet becomes bytes
    kByteFallback,  // a token "<0x0A>" becomes a byte
    kReplace,       // every match of `pattern` becomes `content`
    kMetaspace,     // every `content` becomes a space, or nothing in the first token of a text
    kFuse,          // all tokens become one
    kStrip,  // takes up to `start` times `content` off the front of a token, `stop` off its end
  };
  Kind kind = kFuse;
  std::string pattern;      // for kReplace: Oniguruma syntax
  bool is_literal = false;  // the pattern is plain text instead
  std::string content;      // for kMetaspace and kStrip: one character
  bool prepends = true;     // for kMetaspace: the first token is special
  size_t start = 0;
  size_t stop = 0;
};

// Immutable, so any thread may use it.
class TokenDecoder {
 public:
  static constexpr size_t kMaxGrowth = 8;
  static constexpr size_t kMaxGrowthBytes = 64;

  // Returns the errors of Regex::Compile. An order of steps in which a token's text would depend on
  // distant tokens is UNIMPLEMENTED, too; the message names the step.
  static absl::StatusOr<TokenDecoder> Create(const std::vector<TokenDecoderStep>& steps);

  struct TokenText {
    std::string text;
    bool is_byte = false;  // one byte that need not be a character
  };
  // Returns the text of a token in the middle of others, or with `is_first` at the beginning of a
  // text. RESOURCE_EXHAUSTED when RegexMatcher::Find returns it, and when the text of a token of n
  // bytes has more than kMaxGrowth * n + kMaxGrowthBytes.
  absl::StatusOr<TokenText> Decode(std::string_view token, bool is_first) const;

  // True if `is_first` may make a difference to Decode.
  bool first_token_is_special() const { return first_token_is_special_; }
  // If true, bytes become characters only with the bytes of neighbouring byte tokens, and each byte
  // that becomes none is one U+FFFD. If false, the bytes of all tokens are joined, and each maximal
  // subpart is one U+FFFD.
  bool has_byte_tokens() const { return has_byte_tokens_; }
  // This is taken off the front of a text, at most max_stripped() times.
  const std::string& stripped() const { return stripped_; }
  size_t max_stripped() const { return max_stripped_; }

 private:
  struct Step {
    TokenDecoderStep options;
    std::optional<Regex> regex;  // for kReplace
  };

  absl::Status Add(const TokenDecoderStep& step);
  absl::Status AddAfterFuse(const TokenDecoderStep& step);

  std::vector<Step> steps_;  // the steps that look at one token
  bool first_token_is_special_ = false;
  bool has_byte_tokens_ = false;
  bool is_fused_ = false;
  std::string stripped_;
  size_t max_stripped_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKEN_DECODER_H_
