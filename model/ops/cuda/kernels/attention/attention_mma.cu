#include "model/ops/cuda/kernels/attention/attention_mma.h"
#include "model/ops/cuda/kernels/launch.h"

namespace tlm {
namespace {

// Calls visit(kernel, its shared memory) for the kernel of a width and a cache.
template <typename T, int kHeadDim, typename Visit>
cudaError_t WithCache(bool fp8, Visit visit) {
  return fp8 ? visit(simt::AttendMmaFp8<T, kHeadDim>, MmaFp8AttentionSharedBytes(kHeadDim))
             : visit(simt::AttendMma<T, kHeadDim>, MmaAttentionSharedBytes(kHeadDim));
}
template <typename T, typename Visit>
cudaError_t WithMmaKernel(int64_t head_dim, bool fp8, Visit visit) {
  switch (head_dim) {
    case 64:
      return WithCache<T, 64>(fp8, visit);
    case 80:
      return WithCache<T, 80>(fp8, visit);
    case 96:
      return WithCache<T, 96>(fp8, visit);
    case 128:
      return WithCache<T, 128>(fp8, visit);
    case 256:
      return WithCache<T, 256>(fp8, visit);
    default:
      return cudaErrorInvalidValue;
  }
}

using MmaKernel = void (*)(AttentionKernelArgs);

template <typename T>
cudaError_t LoadMmaAttentionFor(int64_t head_dim, bool fp8) {
  return WithMmaKernel<T>(head_dim, fp8, [](MmaKernel kernel, size_t shared_bytes) {
    return AllowSharedMemory(kernel, shared_bytes);
  });
}

template <typename T>
cudaError_t LaunchMmaAttentionFor(const AttentionArgs& args, cudaStream_t stream) {
  return WithMmaKernel<T>(args.head_dim, args.fp8, [&](MmaKernel kernel, size_t shared_bytes) {
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.blocks)),
                            .block = dim3(kAttentionThreads),
                            .shared_bytes = shared_bytes};
    return Launch(kernel, shape, stream, AttentionKernelArgs(args));
  });
}

}  // namespace

cudaError_t LoadAttention(DType activations, int64_t head_dim, bool fp8, bool mma) {
  if (!mma) return LoadSimtAttention(activations, head_dim, fp8);
  switch (activations) {
    case DType::kBF16:
      return LoadMmaAttentionFor<simt::Bf16>(head_dim, fp8);
    case DType::kF16:
      return LoadMmaAttentionFor<simt::F16>(head_dim, fp8);
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
