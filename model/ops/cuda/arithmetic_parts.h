// The two parts of CheckArithmetic (arithmetic_check.h): products, and attention.
#ifndef TLM_MODEL_OPS_CUDA_ARITHMETIC_PARTS_H_
#define TLM_MODEL_OPS_CUDA_ARITHMETIC_PARTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/tensor/buffer.h"
#include "model/tensor/dtype.h"

namespace tlm {

struct ArithmeticFindings {
  std::string bits;                 // of all results
  std::vector<std::string> faults;  // what differed; "" where nothing did
  bool unknown = false;             // see ArithmeticCheck
};
absl::Status CheckProducts(CudaDevice& device, DType dtype, ArithmeticFindings* findings);
// `head_dim` is not 0.
absl::Status CheckAttention(CudaDevice& device, DType activations, int64_t head_dim, bool fp8_cache,
                            ArithmeticFindings* findings);

// The bits of an element of kBF16 or kF16.
inline uint16_t Encode(DType dtype, float value) {
  return dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
}

struct BufferOf {
  Buffer* buffer;
  int64_t bytes;
};
inline absl::Status AllocateAll(CudaDevice& device, std::initializer_list<BufferOf> buffers) {
  for (const auto& [buffer, bytes] : buffers) {
    const auto size = static_cast<size_t>(bytes);
    TLM_ASSIGN_OR_RETURN(*buffer, device.Allocate(size, MemoryPurpose::kRuntime));
  }
  return absl::OkStatus();
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_ARITHMETIC_PARTS_H_
