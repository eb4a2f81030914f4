#include "model/ops/cuda/kernels/attention_mma.h"

namespace tlm {

cudaError_t PrepareMmaAttentionBf16(int64_t head_dim) {
  return PrepareMmaAttentionFor<simt::Bf16>(head_dim);
}

cudaError_t LaunchMmaAttentionBf16(const AttentionArgs& args, cudaStream_t stream) {
  return LaunchMmaAttentionFor<simt::Bf16>(args, stream);
}

}  // namespace tlm
