// The emulated GPU has no cuBLASLt.
#include "model/base/errors.h"
#include "model/ops/cuda/cublaslt_library.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibrary(CudaDevice&) {
  return Unavailable("no library on an emulated GPU");
}

}  // namespace tlm
