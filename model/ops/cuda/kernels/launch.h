// Launches kernels. Included by the kernels' own files only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_LAUNCH_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

namespace tlm {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  // The kernel may begin before the previous kernel of the stream has ended (programmatic dependent
  // launch; ignored before compute capability 9.0). Such a kernel calls WaitForPrevious itself.
  bool overlaps_previous = true;
};

// Whether the device can overlap kernels; set once, before the first launch.
void SetKernelOverlap(bool possible);
bool KernelOverlap();

template <typename Args>
cudaError_t Launch(void (*kernel)(Args), const LaunchShape& shape, cudaStream_t stream,
                   const std::type_identity_t<Args>& args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = shape.overlaps_previous && KernelOverlap() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args);
}

// Call it once for each instantiation on every device, before its first launch. It loads the
// kernel's code, which otherwise happens at that launch and is not allowed during a graph capture.
// It also requests the largest shared-memory carveout, the same for all kernels: an SM whose
// carveout must change runs no block of the next kernel next to the previous one's.
template <typename Args>
cudaError_t LoadKernel(void (*kernel)(Args)) {
  constexpr int kMaxShared = 100;  // per cent
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kMaxShared);
}
// Loads several; returns the first error.
template <typename... Args>
cudaError_t LoadKernels(void (*... kernels)(Args)) {
  cudaError_t error = cudaSuccess;
  ((error = error == cudaSuccess ? LoadKernel(kernels) : error), ...);
  return error;
}

// LoadKernel, and allows more than 48 KiB of dynamic shared memory.
template <typename Args>
cudaError_t AllowSharedMemory(void (*kernel)(Args), size_t bytes) {
  const cudaError_t error = LoadKernel(kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_LAUNCH_H_
