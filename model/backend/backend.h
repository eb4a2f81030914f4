// Chooses and makes the backend a model runs on.
#ifndef TLM_MODEL_BACKEND_BACKEND_H_
#define TLM_MODEL_BACKEND_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/ops.h"

namespace tlm {

enum class BackendKind { kAuto, kCpu, kCuda };

struct Backend {
  std::unique_ptr<Ops> ops;
  std::string reason;  // one line for people: what was chosen and why
};

// `threads`: of the CPU backend, 0 = every processor this process may use. INVALID_ARGUMENT for an
// impossible number of threads, UNIMPLEMENTED for kCuda: this build has no CUDA backend.
absl::StatusOr<Backend> CreateBackend(BackendKind kind, int threads);

}  // namespace tlm

#endif  // TLM_MODEL_BACKEND_BACKEND_H_
