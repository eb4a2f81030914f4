#include "model/tokenizer/stream_decoder.h"

#include "model/tokenizer/tokenizer.h"

namespace tlm {

std::string StreamDecoder::AppendAll(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) continue;
    repair_.Append(tokenizer_->TokenBytes(id), &text);
  }
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text;
  repair_.Flush(&text);
  return text;
}

}  // namespace tlm
