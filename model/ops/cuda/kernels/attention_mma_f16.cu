#include "model/ops/cuda/kernels/attention_mma.h"

namespace tlm {

cudaError_t PrepareMmaAttentionF16(int64_t head_dim) {
  return PrepareMmaAttentionFor<simt::F16>(head_dim);
}

cudaError_t LaunchMmaAttentionF16(const AttentionArgs& args, cudaStream_t stream) {
  return LaunchMmaAttentionFor<simt::F16>(args, stream);
}

}  // namespace tlm
