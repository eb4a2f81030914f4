// What any tokenizer that was accepted must do.
#ifndef TLM_TESTS_FUZZ_CHECK_TOKENIZER_H_
#define TLM_TESTS_FUZZ_CHECK_TOKENIZER_H_

#include "model/tokenizer/tokenizer.h"

namespace tlm {

// Encodes texts, decodes ids whole and as a stream; ends the program when one disagrees.
void CheckTokenizer(const Tokenizer& tokenizer);

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_CHECK_TOKENIZER_H_
