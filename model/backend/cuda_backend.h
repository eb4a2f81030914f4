// Opens the module that holds the CUDA backend.
#ifndef TLM_MODEL_BACKEND_CUDA_BACKEND_H_
#define TLM_MODEL_BACKEND_CUDA_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_options.h"
#include "model/ops/ops.h"

namespace tlm {

// OK where the machine has NVIDIA's driver; else FAILED_PRECONDITION. Cheap: it looks for the
// driver's library without calling it.
absl::Status ProbeCudaDriver();

// The module beside the running program, in ../lib/tlm (installed), or in ../bin (tests of a
// build). NOT_FOUND names the first two places.
absl::StatusOr<std::string> FindCudaModule();

// Opens the module at `path` and creates its backend. The module is never unloaded: the driver's
// threads cannot be joined. FAILED_PRECONDITION: the file is no module, or one of another build of
// tlm; otherwise errors of tlm_cuda_create. All messages are one line. `path` is trusted: opening a
// module runs its code.
absl::StatusOr<std::unique_ptr<Ops>> OpenCudaModule(const std::string& path,
                                                    const CudaOptions& options);

// All three, in this order; an empty path is looked for.
absl::StatusOr<std::unique_ptr<Ops>> OpenCudaBackend(const std::string& path,
                                                     const CudaOptions& options);

}  // namespace tlm

#endif  // TLM_MODEL_BACKEND_CUDA_BACKEND_H_
