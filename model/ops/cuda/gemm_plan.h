// Which kernel computes a matrix product, and in what shape it is started: pure arithmetic.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_
#define TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The largest m, n and k that may be asked for; with them every count of tiles is an int.
inline constexpr int64_t kMaxGemmExtent = int64_t{1} << 20;

// What products are planned for.
struct GemmDevice {
  int multiprocessors = 1;
  size_t shared_bytes_per_multiprocessor = 0;
};

enum class GemmMethod {
  kSkinny,   // tensor cores, few rows: bound by the weights' bytes
  kTiled,    // tensor cores, many rows
  kLibrary,  // the same bits from a library
  kSimt,     // one product at a time
};

struct GemmShape {
  int64_t m = 0;  // rows of x; > 0
  int64_t n = 0;  // rows of the weight matrix; > 0
  int64_t k = 0;
  DType dtype = DType::kBF16;    // of the weights
  bool gated = false;            // gate and up rows in groups: tiles hold whole ones
  bool library_allowed = false;  // has shown the same bits
};

// Of the library, the method is all there is.
struct GemmPlan {
  GemmMethod method = GemmMethod::kSimt;
  int tile = 0;  // index into kMmaTiles or kSimtTiles
  int row_tiles = 0;
  int token_tiles = 0;
  int grid = 0;  // blocks; block b takes tiles b, b + grid, ... of row_tiles * token_tiles
  int threads = 0;
  size_t shared_bytes = 0;
};

// Whether products with such weights run on the tensor cores, at every m: 16 bits an element, n and
// k multiples of 8.
bool UsesTensorCores(int64_t n, int64_t k, DType dtype);

// The method depends on m only among kSkinny, kTiled and kLibrary, whose bits agree.
GemmPlan PlanGemm(const GemmShape& shape, const GemmDevice& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_
