#include "model/ops/cuda/device/cuda_status.h"

#include "model/base/errors.h"

namespace tlm {

absl::Status CudaStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string_view function = call.substr(0, call.find('('));
  const char* const name = cudaGetErrorName(error);
  const char* const text = cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    return ResourceExhausted("CUDA: {}: {} ({})", function, name, text);
  }
  return Internal("CUDA: {}: {} ({})", function, name, text);
}

absl::Status CudaOutOfMemory(std::string_view what, size_t bytes, size_t free_bytes) {
  return ResourceExhausted("{} bytes of {} asked for, {} are free", bytes, what, free_bytes);
}

}  // namespace tlm
