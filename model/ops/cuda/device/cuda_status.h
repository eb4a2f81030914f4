// Errors of the CUDA runtime as absl::Status.
#ifndef TLM_MODEL_OPS_CUDA_DEVICE_CUDA_STATUS_H_
#define TLM_MODEL_OPS_CUDA_DEVICE_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"

namespace tlm {

// Returns the status of a runtime call: OK, RESOURCE_EXHAUSTED (the device is out of memory) or
// INTERNAL, naming the call, the error and its description. `call` may be the text of a complete
// expression; its arguments are cut off.
absl::Status CudaStatus(cudaError_t error, std::string_view call);

// RESOURCE_EXHAUSTED: `bytes` of `what` ("device memory") were requested, `free_bytes` are left.
absl::Status CudaOutOfMemory(std::string_view what, size_t bytes, size_t free_bytes);

}  // namespace tlm

// Returns from the function if the call failed. Code that has a CudaDevice uses its Check instead,
// which remembers the fault.
#define TLM_CUDA_RETURN_IF_ERROR(call)                                                \
  do {                                                                                \
    if (const cudaError_t tlm_cuda_error_ = (call); tlm_cuda_error_ != cudaSuccess) { \
      return ::tlm::CudaStatus(tlm_cuda_error_, #call);                               \
    }                                                                                 \
  } while (false)

#endif  // TLM_MODEL_OPS_CUDA_DEVICE_CUDA_STATUS_H_
