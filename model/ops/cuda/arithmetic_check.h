// Asks a device, when it is opened, whether its tensor cores do what batch invariance stands on.
#ifndef TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
#define TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/tensor/dtype.h"

namespace tlm {

struct ArithmeticCheck {
  // A digest of all results; equal on devices that gave the same bits.
  std::string probe;
  // What differs from what is expected of products of the type; "" if nothing does.
  std::string bf16;
  std::string f16;

  // Of models with such activations. Those of float32 use no tensor cores: "".
  std::string FaultOf(DType activations) const;
};

// For both types of 16 bits:
//  - sums of few products whose exact bits tell how terms are aligned, truncated and grouped
//    (MMA-Sim, arXiv 2511.10909): all must be those of Hopper's or all those of Ampere's tensor
//    cores. Among them are products with a factor of zero beside small terms: attention's results
//    depend on the division into batches wherever the other factor's size has a say;
//  - own kernels of every tile must give the same bits.
// Some 80 kernels (estimated: 1 ms), one allocation of some 30 KB that is given back. The matrix
// kernels must have been prepared (Gemm::PrepareKernels). Errors: those of the device; a difference
// is none.
absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
