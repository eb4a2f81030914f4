// Compares cublaslt_api.h with the headers of the toolkit that compiles it. Contains no code.
#include <cublasLt.h>

#include <cstddef>

#include "model/ops/cuda/gemm/cublaslt_api.h"

namespace tlm::cublaslt {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kExecutionFailed == CUBLAS_STATUS_EXECUTION_FAILED);
static_assert(kInternalError == CUBLAS_STATUS_INTERNAL_ERROR);
static_assert(sizeof(cublasStatus_t) == sizeof(int));
static_assert(kFloat32 == CUDA_R_32F && kFloat16 == CUDA_R_16F && kBfloat16 == CUDA_R_16BF);
static_assert(sizeof(cudaDataType) == sizeof(int));
static_assert(kComputeFloat32 == CUBLAS_COMPUTE_32F && sizeof(cublasComputeType_t) == sizeof(int));
static_assert(kTransposed == CUBLAS_OP_T);
static_assert(kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(sizeof(cublasLtMatmulDescAttributes_t) == sizeof(int));
static_assert(kLayoutCols == CUBLASLT_MATRIX_LAYOUT_COLS);
static_assert(kLayoutStride == CUBLASLT_MATRIX_LAYOUT_LD);
static_assert(sizeof(cublasLtMatrixLayoutAttribute_t) == sizeof(int));
static_assert(kPreferWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(kPreferReductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(CUBLASLT_REDUCTION_SCHEME_NONE == 0);
static_assert(kPreferAlignments[0] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kPreferAlignments[1] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kPreferAlignments[2] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kPreferAlignments[3] == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(cublasLtMatmulPreferenceAttributes_t) == sizeof(int));
static_assert(kConfigId == CUBLASLT_ALGO_CONFIG_ID);
static_assert(kConfigSplitK == CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
static_assert(kConfigReduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
static_assert(kConfigStages == CUBLASLT_ALGO_CONFIG_STAGES_ID);
static_assert(sizeof(cublasLtMatmulAlgoConfigAttributes_t) == sizeof(int));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace tlm::cublaslt
