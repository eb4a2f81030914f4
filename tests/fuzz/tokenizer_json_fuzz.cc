// tokenizer.json: refused, or a tokenizer that takes any text and any ids.
#include "model/tokenizer/tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = tlm::Tokenizer::FromJson(tlm::FuzzInput(data, size).Rest());
  if (tokenizer.ok()) {
    tlm::CheckTokenizer(**tokenizer);
  } else {
    tlm::CheckRefusal(tokenizer.status());
  }
  return 0;
}
