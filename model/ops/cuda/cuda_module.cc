#include "model/ops/cuda/cuda_module.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/ops/cuda/gemm/cublaslt_library.h"

namespace tlm {
namespace {

int Fail(absl::StatusCode code, std::string_view message, char* error, size_t error_size) {
  if (error_size > 0) {
    const size_t length = std::min(message.size(), error_size - 1);
    std::memcpy(error, message.data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace tlm

extern "C" {

[[gnu::visibility("default")]] const char* tlm_cuda_module_abi() { return TLM_CUDA_MODULE_ABI; }

[[gnu::visibility("default")]] int tlm_cuda_create(const tlm::CudaOptions* options, tlm::Ops** out,
                                                   char* error, size_t error_size) {
  *out = nullptr;
  try {
    auto* const library = options->library ? tlm::MakeCublasLtLibrary : nullptr;
    auto ops = tlm::CudaOps::Create(*options, library);
    if (!ops.ok()) {
      const absl::string_view message = ops.status().message();
      return tlm::Fail(ops.status().code(), {message.data(), message.size()}, error, error_size);
    }
    *out = std::move(ops)->release();
    return 0;
  } catch (const std::exception& thrown) {
    return tlm::Fail(absl::StatusCode::kInternal, thrown.what(), error, error_size);
  } catch (...) {
    return tlm::Fail(absl::StatusCode::kInternal, "unknown exception", error, error_size);
  }
}
}
