// A module that finds no device of the requested number.
#include <cstdio>

#include "absl/status/status.h"
#include "model/ops/cuda/cuda_module.h"

extern "C" {

const char* tlm_cuda_module_abi() { return TLM_CUDA_MODULE_ABI; }

int tlm_cuda_create(const tlm::CudaOptions* options, tlm::Ops** out, char* error,
                    size_t error_size) {
  *out = nullptr;
  std::snprintf(error, error_size, "there is no GPU %s", options->device.c_str());
  return static_cast<int>(absl::StatusCode::kNotFound);
}
}
