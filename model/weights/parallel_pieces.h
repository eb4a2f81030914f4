// Parallel work on weights while they are loaded.
#ifndef TLM_MODEL_WEIGHTS_PARALLEL_PIECES_H_
#define TLM_MODEL_WEIGHTS_PARALLEL_PIECES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tlm {

// Calls work(i) once for every i in [0, pieces), started in ascending order, on the calling thread
// and on others, `threads` in all (0: one per processor, at most 32), or fewer if the system
// refuses more. Returns when all calls have returned. `work` must not throw.
void ForEachPiece(int64_t pieces, int threads, absl::FunctionRef<void(int64_t)> work);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_PARALLEL_PIECES_H_
