// The attention kernels' launchers by type, for attention.cc. Included by their files only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_LAUNCH_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_LAUNCH_H_

#include "model/ops/cuda/kernels/attention.h"

namespace tlm {

cudaError_t PrepareMmaAttentionBf16(int64_t head_dim);
cudaError_t PrepareMmaAttentionF16(int64_t head_dim);
cudaError_t LaunchMmaAttentionBf16(const AttentionArgs& args, cudaStream_t stream);
cudaError_t LaunchMmaAttentionF16(const AttentionArgs& args, cudaStream_t stream);
cudaError_t LaunchSimtAttention(const AttentionArgs& args, DType activations, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_LAUNCH_H_
