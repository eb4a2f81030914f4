#include "model/ops/cuda/kernels/attention_mma.h"
#include "model/ops/cuda/kernels/launch.h"

namespace tlm {
namespace {

// visit(kernel) for the kernel of a width.
template <typename T, typename Visit>
cudaError_t WithMmaKernel(int64_t head_dim, Visit visit) {
  switch (head_dim) {
    case 64:
      return visit(simt::AttendMma<T, 64>);
    case 80:
      return visit(simt::AttendMma<T, 80>);
    case 96:
      return visit(simt::AttendMma<T, 96>);
    case 128:
      return visit(simt::AttendMma<T, 128>);
    case 256:
      return visit(simt::AttendMma<T, 256>);
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T>
cudaError_t PrepareMmaAttentionFor(int64_t head_dim) {
  return WithMmaKernel<T>(head_dim, [&](void (*kernel)(AttentionKernelArgs)) {
    return AllowSharedMemory(kernel, MmaAttentionSharedBytes(head_dim));
  });
}

template <typename T>
cudaError_t LaunchMmaAttentionFor(const AttentionArgs& args, cudaStream_t stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.blocks)),
                          .block = dim3(kAttentionThreads),
                          .shared_bytes = MmaAttentionSharedBytes(args.head_dim)};
  return WithMmaKernel<T>(args.head_dim, [&](void (*kernel)(AttentionKernelArgs)) {
    return Launch(kernel, shape, stream, AttentionKernelArgs(args));
  });
}

}  // namespace

cudaError_t PrepareMmaAttention(DType activations, int64_t head_dim) {
  switch (activations) {
    case DType::kBF16:
      return PrepareMmaAttentionFor<simt::Bf16>(head_dim);
    case DType::kF16:
      return PrepareMmaAttentionFor<simt::F16>(head_dim);
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
      return LaunchMmaAttentionFor<simt::Bf16>(args, stream);
    case DType::kF16:
      return LaunchMmaAttentionFor<simt::F16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tlm
