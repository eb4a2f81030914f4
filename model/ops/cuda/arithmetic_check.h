// Checks, before a model is served, that the tensor cores of a device have the properties that
// batch invariance relies on.
#ifndef TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
#define TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/tensor/dtype.h"

namespace tlm {

// The arithmetic that a model uses.
struct ArithmeticQuestion {
  DType activations = DType::kF32;
  int64_t head_dim = 0;  // for attention on the tensor cores; 0: attention runs on the SIMT kernel
  bool fp8_cache = false;

  bool operator==(const ArithmeticQuestion&) const = default;
};

struct ArithmeticCheck {
  // A digest of all results, equal on devices that gave the same bits. "" for models that use no
  // tensor cores.
  std::string probe;
  // True if the sums match neither Hopper's nor Ampere's tensor cores.
  bool unknown = false;
  // Says what differed although nothing may differ; "" if nothing did.
  std::string fault;
};

// Checks the properties that the own kernels need, for products of the activation type:
//  - a product with a zero factor does not change a sum, whatever the other factor is. Attention
//    multiplies masked weights of zero with values in prefill, and with zeros in decode;
//  - every tile shape gives a product the same bits, also at another place in the tile and next to
//    other rows;
//  - attention gives a row the same bits alone and together with other rows in one unit, in whole
//    items and in cut ones. One set of inputs is peaked (weights of exactly zero next to large
//    values, and small terms), one is random.
// The device may add the 16 products of an mma in any order: all kernels have input i of a sum at
// place i % 16. Its arithmetic may also be unknown. Sums of few products, whose exact bits show how
// terms are aligned, truncated and grouped (MMA-Sim, arXiv 2511.10909), identify known tensor cores
// and distinguish devices.
//
// Estimated: some 60 launches and 40 copies, 1 ms; half a megabyte of device memory (1 MB with
// heads of 256), freed at the end. If head_dim is not 0, the attention kernels must have been
// loaded. Errors are device errors; a difference is not an error.
absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device,
                                                const ArithmeticQuestion& question);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
