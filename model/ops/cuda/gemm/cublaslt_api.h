// The part of cuBLASLt's C interface that the backend uses. The library is opened at run time, so
// the module also loads on a machine without it.
//
// No header of the library is compiled in, so one build serves every major version in
// kCublasLtMajors. This is safe for the 16 functions in CublasLtApi because: all are documented and
// exported by both 12 and 13; descriptors are made by the library (..Create, not the headers'
// inline ..Init, which compiles in sizes that have changed) and are used as opaque pointers; the
// two structs that are passed have had the same members since 11; enumerator values are never
// reused. cublaslt_abi.cc compares all of this with the headers of the toolkit that builds.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_API_H_
#define TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_API_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

inline constexpr std::array<size_t, 2> kCublasLtMajors = {13, 12};
// The file of each major version, in the order to try them.
inline constexpr std::array<const char*, 2> kCublasLtFiles = {"libcublasLt.so.13",
                                                              "libcublasLt.so.12"};

namespace cublaslt {

// cublasStatus_t
inline constexpr int kSuccess = 0;
inline constexpr int kExecutionFailed = 13;
inline constexpr int kInternalError = 14;
// cudaDataType, cublasComputeType_t, cublasOperation_t
inline constexpr int kFloat32 = 0;
inline constexpr int kFloat16 = 2;
inline constexpr int kBfloat16 = 14;
inline constexpr int kComputeFloat32 = 68;
inline constexpr int32_t kTransposed = 1;
// cublasLtMatmulDescAttributes_t
inline constexpr int kDescTransA = 3;  // int32_t
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kLayoutCols = 3;    // uint64_t
inline constexpr int kLayoutStride = 4;  // int64_t
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kPreferWorkspace = 1;                     // uint64_t
inline constexpr int kPreferReductions = 3;                    // uint32_t, a mask; 0: no reductions
inline constexpr std::array kPreferAlignments = {5, 6, 7, 8};  // uint32_t, of A, B, C, D
// cublasLtMatmulAlgoConfigAttributes_t
inline constexpr int kConfigId = 0;         // int32_t
inline constexpr int kConfigSplitK = 2;     // int32_t
inline constexpr int kConfigReduction = 3;  // uint32_t
inline constexpr int kConfigStages = 6;     // uint32_t

struct Algorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;  // the members below are valid only with kSuccess
  float waves;
  int reserved[4];
};

}  // namespace cublaslt

// Each member is the function cublasLt<Member>. An int result is a cublasStatus_t.
struct CublasLtApi {
  std::string file;  // the opened file

  size_t (*GetVersion)() = nullptr;  // major * 10000 + minor * 100 + patch
  const char* (*GetStatusString)(int status) = nullptr;
  int (*Create)(void** handle) = nullptr;
  int (*Destroy)(void* handle) = nullptr;
  int (*MatrixLayoutCreate)(void** layout, int type, uint64_t rows, uint64_t cols,
                            int64_t stride) = nullptr;
  int (*MatrixLayoutDestroy)(void* layout) = nullptr;
  int (*MatrixLayoutSetAttribute)(void* layout, int attribute, const void* value,
                                  size_t bytes) = nullptr;
  int (*MatmulDescCreate)(void** desc, int compute_type, int scale_type) = nullptr;
  int (*MatmulDescDestroy)(void* desc) = nullptr;
  int (*MatmulDescSetAttribute)(void* desc, int attribute, const void* value,
                                size_t bytes) = nullptr;
  int (*MatmulPreferenceCreate)(void** preference) = nullptr;
  int (*MatmulPreferenceDestroy)(void* preference) = nullptr;
  int (*MatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value,
                                      size_t bytes) = nullptr;
  int (*MatmulAlgoGetHeuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d,
                                void* preference, int asked, cublaslt::HeuristicResult* results,
                                int* found) = nullptr;
  int (*MatmulAlgoConfigGetAttribute)(const cublaslt::Algorithm* algorithm, int attribute,
                                      void* value, size_t bytes, size_t* written) = nullptr;
  int (*Matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                void* d, void* d_layout, const cublaslt::Algorithm* algorithm, void* workspace,
                size_t workspace_bytes, cudaStream_t stream) = nullptr;
};

// Opens the library `file`, a path or a name that the dynamic linker searches for. It is never
// closed, because threads that it may have started cannot be joined. UNAVAILABLE, naming `file`: it
// cannot be opened, lacks a function, or has a major version that is not in kCublasLtMajors.
absl::StatusOr<CublasLtApi> OpenCublasLt(const std::string& file);

// For example "cuBLASLt 13.1.0".
std::string CublasLtVersion(const CublasLtApi& api);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_API_H_
