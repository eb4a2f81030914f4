// Chooses and makes the backend a model runs on.
#ifndef TLM_MODEL_BACKEND_BACKEND_H_
#define TLM_MODEL_BACKEND_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_options.h"
#include "model/ops/cuda/cuda_options.h"
#include "model/ops/ops.h"

namespace tlm {

enum class BackendKind {
  kAuto,  // kCuda where it works, else kCpu
  kCpu,
  kCuda,
};

struct BackendOptions {
  BackendKind kind = BackendKind::kAuto;
  int threads = 0;  // of the CPU backend, as the next two; see CpuOptions
  std::string isa = std::string(kBestIsa);
  bool pin_threads = true;
  CudaOptions cuda{};
  std::string cuda_module{};  // path of libtlm_cuda.so; empty: where FindCudaModule looks
};

struct Backend {
  std::unique_ptr<Ops> ops;
  std::string reason;  // one line for display: what was chosen and why
};

// INVALID_ARGUMENT for an impossible number of threads or instruction set. With kCuda also what
// OpenCudaBackend returns; with kAuto that only becomes the reason.
absl::StatusOr<Backend> CreateBackend(const BackendOptions& options);

}  // namespace tlm

#endif  // TLM_MODEL_BACKEND_BACKEND_H_
