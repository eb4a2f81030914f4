// A library with cuBLASLt's interface that computes nothing itself.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_FAKE_CUBLASLT_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_FAKE_CUBLASLT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tlm {

struct FakeMatrix {
  int type;
  uint64_t rows;
  uint64_t cols;
  int64_t stride;

  bool operator==(const FakeMatrix&) const = default;
};

struct FakeMatmul {
  uint64_t algorithm;
  FakeMatrix a, b, c, d;
  const void* a_data;
  const void* b_data;
  void* d_data;
  int32_t transposed;  // of a
  cudaStream_t stream;
};

struct FakeCublasLt {
  size_t version = 130100;
  int create_status = 0;
  uint64_t algorithms = 0;                          // the heuristic names 0 .. algorithms - 1
  int (*matmul)(const FakeMatmul& call) = nullptr;  // what cublasLtMatmul does and returns
  int alive = 0;                                    // handles and descriptors
};

// Exported by the library under the name below.
using FakeCublasLtFunction = FakeCublasLt*();
inline constexpr char kFakeCublasLtSymbol[] = "tlm_fake_cublaslt";

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_FAKE_CUBLASLT_H_
