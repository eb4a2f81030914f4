// Passes over a row of logits, one table per instruction set. All tables give the same results, bit
// for bit: they use the exponential of model/base/elementary.h and the noise of sampling_math.h.
#ifndef TLM_MODEL_SAMPLING_SCAN_KERNELS_H_
#define TLM_MODEL_SAMPLING_SCAN_KERNELS_H_

#include <cstdint>
#include <vector>

namespace tlm {

// The key of a sample's noise and the requested tokens: 4 * first_group .. 4 * (first_group +
// groups) - 1.
struct NoiseRange {
  uint64_t seed = 0;
  uint64_t position = 0;
  uint32_t output_index = 0;
  uint32_t first_group = 0;
  int64_t groups = 0;
};

struct NoiseHit {
  int32_t id = 0;
  uint32_t word = 0;
};
// find_noise may write this many hits more than there are tokens.
inline constexpr int64_t kMoreHits = 32;

struct ScanKernels {
  const char* name;
  // Returns the largest of n >= 1 logits. `*valid`: none is NaN or +infinity; if not, the result is
  // undefined. Of equal zeros, it may return either.
  float (*max)(const float* logits, int64_t n, bool* valid);
  // Writes the indices of logits in [least, most], ascending, and returns their number. `found` has
  // room for n.
  int64_t (*find)(const float* logits, int64_t n, float least, float most, int32_t* found);
  // Writes the tokens whose uniform word (NoiseWord) is at least `least`, in any order, and returns
  // their number. `hits` has room for 4 * groups + kMoreHits. Some may be past the end of the
  // range.
  int64_t (*find_noise)(const NoiseRange& range, uint32_t least, NoiseHit* hits);
  // Computes gaps[i] = -ScaledLogit(logits[i], best, inverse_temperature) and weights[i] =
  // FixedPoint(ExpOfNegative(-gaps[i]), scale); logits are at most `best`, not NaN.
  void (*weigh)(const float* logits, int64_t n, float best, double inverse_temperature,
                double scale, double* gaps, uint64_t* weights);
};

const ScanKernels& PortableScanKernels();
#if defined(__x86_64__)
const ScanKernels& Avx2ScanKernels();
const ScanKernels& Avx512ScanKernels();
#endif

// Returns the kernels that this machine can run, from the slowest to the fastest; the first is the
// portable one.
std::vector<const ScanKernels*> AvailableScanKernels();
const ScanKernels& FastestScanKernels();

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SCAN_KERNELS_H_
