// Wraps cuBLASLt as a GemmLibrary.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_LIBRARY_H_
#define TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_LIBRARY_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/gemm/gemm_library.h"

namespace tlm {

// Opens the library on `device`, which must outlive it: the first of `files` that opens
// (OpenCublasLt) and supports the device. Otherwise returns UNAVAILABLE, with the reason for each
// file.
absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibraryFrom(
    CudaDevice& device, std::span<const std::string> files);
// Tries kCublasLtFiles.
absl::StatusOr<std::unique_ptr<GemmLibrary>> MakeCublasLtLibrary(CudaDevice& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_CUBLASLT_LIBRARY_H_
