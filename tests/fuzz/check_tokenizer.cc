#include "tests/fuzz/check_tokenizer.h"

#include <algorithm>
#include <vector>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "model/tokenizer/stream_decoder.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

constexpr std::string_view kTexts[] = {"",
                                       " ",
                                       "a",
                                       "Hello world's 1234 times\n\n  <s>",
                                       "\xc3\xa4\xe4\xb8\xad\xf0\x9f\x99\x82",
                                       "\xe2\x96\x81\xe2\x96\x81 ab",
                                       "e\xcc\x81 \xef\xac\x81 \xc2\xa0\xe1\x84\x80\xe1\x85\xa1"};
constexpr int32_t kMaxIds = 2000;  // of those that are decoded

}  // namespace

void CheckTokenizer(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = {-1, tokenizer.vocab_size(), 0x7fffffff};
  for (int32_t id = 0; id < std::min(kMaxIds, tokenizer.vocab_size()); ++id) ids.push_back(id);
  for (const std::string_view text : kTexts) {
    const auto encoded = tokenizer.Encode(text, /*add_special_tokens=*/true);
    if (IsRefused(encoded)) continue;
    for (const int32_t id : *encoded) TLM_CHECK(id >= 0 && id < tokenizer.vocab_size());
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }
  for (const bool skip : {false, true}) {
    const std::string text = tokenizer.Decode(ids, skip);
    TLM_CHECK(FindInvalidUtf8(text) == text.npos);
    StreamDecoder decoder(&tokenizer, skip, TextPosition::kBeginsText);
    std::string streamed;
    for (const int32_t id : ids) streamed += decoder.Append(id);
    TLM_CHECK(streamed + decoder.Flush() == text);
  }
}

}  // namespace tlm
