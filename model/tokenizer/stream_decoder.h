// Text out of tokens that arrive one by one.
#ifndef TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
#define TLM_MODEL_TOKENIZER_STREAM_DECODER_H_

#include <cstdint>
#include <span>
#include <string>

#include "model/tokenizer/utf8.h"

namespace tlm {

class Tokenizer;

// One for each stream of tokens. What it returns is always well-formed UTF-8, and all of it
// together is Tokenizer::Decode of all the ids, however they were portioned. Not thread-safe;
// streams with decoders of their own may share a tokenizer.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // The text that the token completes, often empty: up to 3 bytes that may yet become a character
  // are held back. Bytes that cannot become one are U+FFFD.
  std::string Append(int32_t id) { return AppendAll({&id, 1}); }
  std::string AppendAll(std::span<const int32_t> ids);

  // The stream has ended: U+FFFD if bytes were held back, else nothing. The decoder is then as new.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  Utf8Repair repair_;
};

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_STREAM_DECODER_H_
