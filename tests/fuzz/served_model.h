// A small served model for targets about requests: no weights, only what convert looks at.
#ifndef TLM_TESTS_FUZZ_SERVED_MODEL_H_
#define TLM_TESTS_FUZZ_SERVED_MODEL_H_

#include <cstdint>

#include "server/serving/served_model.h"

namespace tlm {

// Has a byte-level tokenizer, a chat template, formats of tools and reasoning, and a context of 64
// tokens. Lives as long as the process.
const ServedModel& FuzzServedModel();

// Counts up, so that runs repeat.
uint64_t FuzzRandom();

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_SERVED_MODEL_H_
