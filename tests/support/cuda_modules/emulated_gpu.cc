// The module's emulated GPU: without cuBLASLt and, where TLM_EMULATED_DEFECT is in the environment,
// with tensor cores whose sums depend on neighbouring columns.
#include <cstdlib>

#include "model/base/errors.h"
#include "model/ops/cuda/gemm/cublaslt_library.h"
#include "tests/support/simt/emulator.h"

namespace tlm {
namespace {

[[maybe_unused]] const bool has_defect = [] {
  if (std::getenv("TLM_EMULATED_DEFECT") == nullptr) return false;
  simt::MmaUnit mma = simt::kHopperMma;
  mma.columns_align = true;
  simt::emulated::Configure({.mma = mma});
  return true;
}();

}  // namespace

absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibrary(CudaDevice&) {
  return Unavailable("no library on an emulated GPU");
}

}  // namespace tlm
