// Launchers of the second and third kernel of sample.h, for LaunchSample.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_KERNELS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_KERNELS_H_

#include <cuda_runtime.h>

#include "model/ops/cuda/kernels/sampling/sample_scratch.h"

namespace tlm {

cudaError_t LoadNoise();
cudaError_t LoadFinishSampling();
cudaError_t LaunchNoise(const SampleKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchFinishSampling(const SampleKernelArgs& args, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_KERNELS_H_
