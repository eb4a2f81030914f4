// Turns tokens that arrive one by one into text.
#ifndef TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
#define TLM_MODEL_TOKENIZER_STREAM_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "model/text/utf8.h"

namespace tlm {

class Tokenizer;

// The place of a stream's first token. SentencePiece's vocabularies begin words with a space, and
// the first word of a text loses it:
//
//                          kContinuesText   kBeginsText
//   ▁a ▁time               " a time"        "a time"
enum class TextPosition { kBeginsText, kContinuesText };

// Decodes one stream of tokens. The returned text is always well-formed UTF-8 and does not depend
// on how the tokens were portioned; with kBeginsText, all of it together equals Tokenizer::Decode
// of all the ids. Not thread-safe; streams with decoders of their own may share a tokenizer.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. Generated tokens continue their prompt: PositionAfter
  // says whether the prompt has any text.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens = true,
                         TextPosition position = TextPosition::kContinuesText);

  // Returns the text that the token completes, often none: up to 3 bytes that may yet become a
  // character are held back. Bytes that cannot become one are U+FFFD.
  std::string Append(int32_t id) { return AppendAll({&id, 1}); }
  std::string AppendAll(std::span<const int32_t> ids);

  // Ends the stream: returns U+FFFD if bytes were held back, otherwise nothing. The decoder then
  // starts afresh.
  std::string Flush();

  // True while bytes of the tokens so far are held back: the following bytes decide their text.
  bool holds() const { return repair_.holds(); }

 private:
  void AppendToken(int32_t id, std::string* text);
  void Emit(std::string_view text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  TextPosition position_;
  bool is_first_;      // no token has arrived yet
  size_t strippable_;  // how often the decoder's stripped() may still be taken off
  Utf8Repair repair_;
};

// Returns the place of the tokens that follow `ids`: kBeginsText when all of `ids` are special or
// no tokens.
TextPosition PositionAfter(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
