#include "model/ops/cuda/kernels/attention.h"

#include "model/ops/cuda/kernels/attention_launch.h"
#include "model/ops/cuda/kernels/attention_work.h"

namespace tlm {

cudaError_t PrepareMmaAttention(DType activations, int64_t head_dim) {
  switch (activations) {
    case DType::kBF16:
      return PrepareMmaAttentionBf16(head_dim);
    case DType::kF16:
      return PrepareMmaAttentionF16(head_dim);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchAttention(const AttentionArgs& args, DType activations, bool mma,
                            cudaStream_t stream) {
  if (!(args.scale > 0.0f) || args.group <= 0 || args.blocks <= 0) return cudaErrorInvalidValue;
  if (!mma) return LaunchSimtAttention(args, activations, stream);
  switch (activations) {
    case DType::kBF16:
      return LaunchMmaAttentionBf16(args, stream);
    case DType::kF16:
      return LaunchMmaAttentionF16(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tlm
