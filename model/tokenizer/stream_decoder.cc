#include "model/tokenizer/stream_decoder.h"

#include <algorithm>
#include <string_view>

#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm {
namespace {

Utf8Repair::Unit RepairUnit(const Tokenizer& tokenizer) {
  return tokenizer.decoder().has_byte_tokens() ? Utf8Repair::Unit::kByte
                                               : Utf8Repair::Unit::kMaximalSubpart;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens,
                             TextPosition position)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      position_(position),
      is_first_(position == TextPosition::kBeginsText),
      strippable_(is_first_ ? tokenizer->decoder().max_stripped() : 0),
      repair_(RepairUnit(*tokenizer)) {}

std::string StreamDecoder::AppendAll(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (!tokenizer_->HasToken(id) || (skip_special_tokens_ && tokenizer_->IsSpecial(id))) continue;
    AppendToken(id, &text);
  }
  return text;
}

void StreamDecoder::AppendToken(int32_t id, std::string* text) {
  std::string complete;
  // Bytes join only with bytes.
  const bool is_byte = tokenizer_->IsByte(id);
  if (tokenizer_->decoder().has_byte_tokens() && !is_byte) repair_.Flush(&complete);
  if (is_first_ && tokenizer_->decoder().first_token_is_special()) {
    repair_.Append(tokenizer_->FirstTokenText(id), &complete);
  } else {
    repair_.Append(tokenizer_->TokenBytes(id), &complete);
  }
  is_first_ = false;
  Emit(complete, text);
}

// Removes the decoder's stripped() from the front of the text.
void StreamDecoder::Emit(std::string_view text, std::string* out) {
  const std::string_view stripped = tokenizer_->decoder().stripped();
  while (strippable_ > 0 && !text.empty()) {
    if (text.substr(0, stripped.size()) != stripped) {
      strippable_ = 0;
    } else {
      text.remove_prefix(stripped.size());
      --strippable_;
    }
  }
  *out += text;
}

std::string StreamDecoder::Flush() {
  std::string complete, text;
  repair_.Flush(&complete);
  Emit(complete, &text);
  *this = StreamDecoder(tokenizer_, skip_special_tokens_, position_);
  return text;
}

TextPosition PositionAfter(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const bool has_text = std::any_of(ids.begin(), ids.end(), [&](int32_t id) {
    return tokenizer.HasToken(id) && !tokenizer.IsSpecial(id);
  });
  return has_text ? TextPosition::kContinuesText : TextPosition::kBeginsText;
}

}  // namespace tlm
