// Whether the tensor cores compute what their model in C++ says (tests/support/simt/mma_model.h).
#ifndef TLM_TESTS_GPU_CANON_MMA_CHECK_H_
#define TLM_TESTS_GPU_CANON_MMA_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/tensor/dtype.h"
#include "tests/support/simt/mma_model.h"

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

// Instructions of 16x16 and 8x16 operands and 16x8 accumulators, one after the other.
struct MmaTiles {
  std::vector<uint16_t> a, b;
  std::vector<float> c;
};
// Runs them: the new accumulators.
using MmaRun = std::function<absl::StatusOr<std::vector<float>>(const MmaTiles&, DType)>;

// Whether a product with a zero factor has a say in a sum. Masked weights of attention are zero: a
// prefill multiplies them with values, a decoding step with zeros. Where they have a say, the two
// differ in bits.
struct ZeroCheck {
  std::string name;
  DType dtype = DType::kBF16;
  int64_t elements = 0;
  int64_t partner_differences = 0;  // zero times a value against zero times zero, on the device
  int64_t model_differences = 0;    // zero times zero against the model's sum without it
  std::string first = {};           // difference; empty if there is none

  bool holds() const { return partner_differences == 0 && model_differences == 0; }
};

// Sums of small terms beside zeros with large partners, of every kind in both formats, `tiles`
// instructions each. `unit` is the model's.
absl::StatusOr<std::vector<ZeroCheck>> CheckZeros(const MmaRun& run, simt::MmaUnit unit, int tiles);
// On the device, as mma.sync computes them.
MmaRun RunOn(CudaDevice& device);
simt::MmaUnit UnitOf(const CudaDevice& device);

// Every kind in both formats, `tiles` instructions each.
absl::StatusOr<std::vector<MmaCheck>> CheckMma(CudaDevice& device, int tiles);

}  // namespace tlm

#endif  // TLM_TESTS_GPU_CANON_MMA_CHECK_H_
