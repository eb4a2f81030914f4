// A vendor's matrix products, used where they give the bits of the own kernels.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_GEMM_LIBRARY_H_
#define TLM_MODEL_OPS_CUDA_GEMM_GEMM_LIBRARY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"

namespace tlm {

// out[m, n] = sum over k of x[m, k] * w[n, k] for every m in (min_rows, max_rows]: x and w have one
// 16-bit type; sums are accumulated in float32 and rounded once.
struct LibraryGemm {
  int64_t n = 0;  // multiples of 8
  int64_t k = 0;
  int64_t w_stride = 0;            // elements from one row of w to the next; a multiple of 8
  DType dtype = DType::kBF16;      // type of x and w: kBF16 or kF16
  DType out_dtype = DType::kBF16;  // dtype, or kF32
  int64_t min_rows = 0;            // other methods compute up to this many rows
  int64_t max_rows = 0;

  bool operator==(const LibraryGemm&) const = default;
};

// Memory to try algorithms on, and functions to judge them. The memory is on the device and
// 256-byte aligned; its contents reveal wrong orders of summation. Strides are in elements,
// multiples of 8.
struct GemmProbe {
  // Queues the probe's product of m rows on the compute stream. Returns UNIMPLEMENTED if it cannot
  // be run and the device has not failed.
  using Product = std::function<absl::Status()>;

  const void* x = nullptr;  // [max_rows, k]
  int64_t x_stride = 0;
  const void* w = nullptr;  // [n, k]
  void* out = nullptr;      // [max_rows, n]
  int64_t out_stride = 0;
  // Whether `product` can be run and writes to `out` [m, n] the bits of the own kernels; `out` is
  // NaN when it begins. Returns device errors, and errors of `product` other than UNIMPLEMENTED.
  std::function<absl::StatusOr<bool>(int64_t m, const Product& product)> agrees;
  // Milliseconds that `product` and the remaining work on its sums take, with no weights in the L2
  // cache (MedianTime). Also returns errors of `product`.
  std::function<absl::StatusOr<float>(int64_t m, const Product& product)> time;
  // The same for the own kernels.
  std::function<absl::StatusOr<float>(int64_t m)> own_time;
};

// Plans are made when a model is loaded; Run neither allocates nor tries. Threading is as for
// Device.
class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;

  // For example "cuBLASLt 13.1.0".
  virtual std::string version() const = 0;

  // Finds, for every bucket of row counts (powers of two), the fastest among the own kernels and
  // some algorithms that agree with them (ChooseFastest). Returns the number of the plan for Run;
  // -1: the own kernels in every bucket. A second call with an equal LibraryGemm answers without
  // trying. Returns INTERNAL for a device fault. An algorithm that only fails to run is not a
  // fault.
  virtual absl::StatusOr<int> Prepare(const LibraryGemm& gemm, const GemmProbe& probe) = 0;

  // Queues the product of m rows, min_rows < m <= max_rows. Addresses are multiples of 16 bytes,
  // strides multiples of 8 elements. Returns UNIMPLEMENTED, with nothing queued, if these rows
  // belong to the own kernels, if the library refuses this call, or if it failed to run them on a
  // healthy device; the caller then computes the product. Returns INTERNAL for a device fault, or
  // for a failure while `stream` is captured into a graph, which must then be discarded. After a
  // failure, rows of that bucket belong to the own kernels.
  virtual absl::Status Run(int plan, const void* x, int64_t x_stride, int64_t m, const void* w,
                           void* out, int64_t out_stride, cudaStream_t stream) = 0;

  // The reason why Run last left a bucket to the own kernels; the device counts these. Empty:
  // never.
  virtual std::string last_failure() const { return ""; }
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_GEMM_LIBRARY_H_
