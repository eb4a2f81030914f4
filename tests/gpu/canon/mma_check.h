// Whether the tensor cores compute what their model in C++ says (tests/support/simt/mma_model.h).
#ifndef TLM_TESTS_GPU_CANON_MMA_CHECK_H_
#define TLM_TESTS_GPU_CANON_MMA_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/tensor/dtype.h"

namespace tlm {

// One kind of operands.
struct MmaCheck {
  std::string name;
  DType dtype = DType::kBF16;
  // The model guesses here: a difference corrects the model, it breaks nothing.
  bool assumed = false;
  int64_t elements = 0;
  int64_t differences = 0;  // in bits
  std::string first = {};   // difference; empty if there is none
};

// Every kind in both formats, `tiles` instructions each.
absl::StatusOr<std::vector<MmaCheck>> CheckMma(CudaDevice& device, int tiles);

}  // namespace tlm

#endif  // TLM_TESTS_GPU_CANON_MMA_CHECK_H_
