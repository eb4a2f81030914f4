// Selects and creates the backend of a model.
#ifndef TLM_MODEL_BACKEND_BACKEND_H_
#define TLM_MODEL_BACKEND_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_options.h"
#include "model/ops/cuda/device/cuda_options.h"
#include "model/ops/ops.h"

namespace tlm {

enum class BackendKind {
  kAuto,  // kCuda where it works, otherwise kCpu
  kCpu,
  kCuda,
};

struct BackendOptions {
  BackendKind kind = BackendKind::kAuto;
  int threads = 0;  // of the CPU backend, like the next two; see CpuOptions
  std::string isa = std::string(kBestIsa);
  bool pin_threads = true;
  CudaOptions cuda{};
  std::string cuda_module{};  // path of libtlm_cuda.so; empty: FindCudaModule() finds it
};

struct Backend {
  std::unique_ptr<Ops> ops;
  std::string reason;  // one line for display: what was chosen and why
  std::string detail;  // with kAuto and without CUDA: the error that decided
};

// INVALID_ARGUMENT for an invalid number of threads or an unsupported instruction set. With kCuda,
// errors of OpenCudaBackend are returned as well. With kAuto they only become the reason and
// detail, unless the driver is merely absent.
absl::StatusOr<Backend> CreateBackend(const BackendOptions& options);

// OK where the machine has NVIDIA's driver, otherwise FAILED_PRECONDITION. Cheap: it looks for the
// driver's library without calling it.
absl::Status ProbeCudaDriver();

// Finds the module next to the running program, in ../lib/tlm (installed), or in ../bin (tests of a
// build). NOT_FOUND names the first two places.
absl::StatusOr<std::string> FindCudaModule();

// Opens the module at `path` and creates its backend. The module is never unloaded: the driver's
// threads cannot be joined. FAILED_PRECONDITION if the file is no module or belongs to another
// build of tlm; otherwise errors of tlm_cuda_create. All messages are one line. `path` is trusted:
// opening a module runs its code.
absl::StatusOr<std::unique_ptr<Ops>> OpenCudaModule(const std::string& path,
                                                    const CudaOptions& options);

// Calls ProbeCudaDriver, FindCudaModule if the path is empty, and OpenCudaModule.
absl::StatusOr<std::unique_ptr<Ops>> OpenCudaBackend(const std::string& path,
                                                     const CudaOptions& options);

}  // namespace tlm

#endif  // TLM_MODEL_BACKEND_BACKEND_H_
