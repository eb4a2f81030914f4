// Checks the decoding of streams, however they are cut.
#ifndef TLM_TESTS_UNIT_MODEL_TOKENIZER_EVERY_SPLIT_H_
#define TLM_TESTS_UNIT_MODEL_TOKENIZER_EVERY_SPLIT_H_

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "model/text/utf8.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"

namespace tlm {

// Expects that the ids, decoded in portions of every possible cut, give the text of Decode, and
// valid UTF-8 all along.
inline void ExpectEverySplitGivesTheText(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                         bool skip_special_tokens, TextPosition position) {
  const std::string whole = tokenizer.Decode(ids, skip_special_tokens);
  // Bit i of `cuts` set: a portion ends after token i.
  for (uint32_t cuts = 0; cuts < 1u << (ids.size() - 1); ++cuts) {
    StreamDecoder decoder(&tokenizer, skip_special_tokens, position);
    std::string text;
    size_t begin = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i + 1 < ids.size() && (cuts >> i & 1u) == 0) continue;
      text += decoder.AppendAll(ids.subspan(begin, i + 1 - begin));
      ASSERT_EQ(FindInvalidUtf8(text), text.npos);
      begin = i + 1;
    }
    ASSERT_EQ(text + decoder.Flush(), whole);
  }
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_TOKENIZER_EVERY_SPLIT_H_
