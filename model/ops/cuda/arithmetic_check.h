// Asks a device, before a model is served on it, whether its tensor cores do what batch invariance
// stands on.
#ifndef TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
#define TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/tensor/dtype.h"

namespace tlm {

// What a model computes with.
struct ArithmeticQuestion {
  DType activations = DType::kF32;
  int64_t head_dim = 0;  // of attention on the tensor cores; 0: it is plain arithmetic
  bool fp8_cache = false;

  bool operator==(const ArithmeticQuestion&) const = default;
};

struct ArithmeticCheck {
  // A digest of all results; equal on devices that gave the same bits. "" of models that use no
  // tensor cores.
  std::string probe;
  // The sums are neither those of Hopper's nor those of Ampere's tensor cores.
  bool unknown = false;
  // What differs where nothing may, in words; "" if nothing does.
  std::string fault;
};

// What own kernels stand on, of products of the type:
//  - a factor of zero: the other one's size has no say in the sum. Attention multiplies masked
//    weights with values in a prompt, with zeros in a decoding step;
//  - every tile, and another place in it beside other rows, gives a product the same bits;
//  - attention gives rows that share a unit the bits that they have alone, in whole items and in
//    cut ones. Its inputs are peaked: weights of exactly zero beside large values, and small terms;
//    and random.
// The order of the 16 products in an mma is the device's own: all kernels have input i of a sum at
// place i % 16. Nor need sums be of a known kind. Sums of few products whose exact bits tell how
// terms are aligned, truncated and grouped (MMA-Sim, arXiv 2511.10909) name the kind, and tell
// devices apart.
//
// Estimated: some 60 launches and 40 copies, 1 ms; half a megabyte of the device's memory, or one
// with heads of 256, which is given back. Attention's kernels, if head_dim is not 0, must have been
// loaded. Errors: those of the device; a difference is none.
absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device,
                                                const ArithmeticQuestion& question);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_ARITHMETIC_CHECK_H_
