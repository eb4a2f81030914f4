// Text out of tokens that arrive one by one.
#ifndef TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
#define TLM_MODEL_TOKENIZER_STREAM_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "model/text/utf8.h"

namespace tlm {

class Tokenizer;

// Where the first token of a stream stands. SentencePiece's vocabularies begin words with a space,
// which the first word of a text loses:
//
//                          kContinuesText   kBeginsText
//   ▁a ▁time               " a time"        "a time"
enum class TextPosition { kBeginsText, kContinuesText };

// One for each stream of tokens. What it returns is always well-formed UTF-8 and does not depend on
// how the tokens were portioned; all of it together is, with kBeginsText, Tokenizer::Decode of all
// the ids. Not thread-safe; streams with decoders of their own may share a tokenizer.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. Generated tokens continue their prompt: PositionAfter
  // says whether there was any text in it.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens = true,
                         TextPosition position = TextPosition::kContinuesText);

  // The text that the token completes, often empty: up to 3 bytes that may yet become a character
  // are held back. Bytes that cannot become one are U+FFFD.
  std::string Append(int32_t id) { return AppendAll({&id, 1}); }
  std::string AppendAll(std::span<const int32_t> ids);

  // The stream has ended: U+FFFD if bytes were held back, else nothing. The decoder is then as new.
  std::string Flush();

  // Whether bytes of the tokens so far are held back: what follows them decides their text.
  bool holds() const { return repair_.holds(); }

 private:
  void AppendToken(int32_t id, std::string* text);
  void Emit(std::string_view text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  TextPosition position_;
  bool is_first_;      // no token yet
  size_t strippable_;  // how often what the decoder strips may still be taken off
  Utf8Repair repair_;
};

// Where the tokens stand that follow `ids`: kBeginsText when these are all special or no tokens.
TextPosition PositionAfter(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
