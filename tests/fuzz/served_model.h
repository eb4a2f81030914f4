// A small served model for targets about requests: no weights, only what convert looks at.
#ifndef TLM_TESTS_FUZZ_SERVED_MODEL_H_
#define TLM_TESTS_FUZZ_SERVED_MODEL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "server/serving/served_model.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {

// Has a byte-level tokenizer, a chat template, formats of tools and reasoning, and a context of 64
// tokens. Lives as long as the process.
const ServedModel& FuzzServedModel();

// Counts up, so that runs repeat.
uint64_t FuzzRandom();

// A request from the wire: what `convert` makes of it is as `check` says, or it is refused. Returns
// what a target returns.
template <typename Request, typename Call>
int CheckRequest(const uint8_t* data, size_t size,
                 absl::StatusOr<Call> (*convert)(const Request& request, const ServedModel& model),
                 void (*check)(const Call& call, const ServedModel& model)) {
  Request request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<Call> call = convert(request, FuzzServedModel());
  if (call.ok()) {
    check(*call, FuzzServedModel());
  } else {
    CheckRefusal(call.status());
  }
  return 0;
}

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_SERVED_MODEL_H_
