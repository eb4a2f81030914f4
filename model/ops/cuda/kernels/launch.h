// Starting a kernel. Included by the kernels' own files only.
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
  // The kernel may begin before the one before it in the stream has ended: it calls WaitForPrevious
  // itself (programmatic dependent launch; ignored by devices before compute capability 9.0).
  bool overlaps_previous = true;
};

// Whether devices of this process can overlap kernels; set once, before the first launch.
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

// Once for each instantiation, on every device, before its first launch. Brings its code there,
// which otherwise happens with that launch and may not while a graph is recorded; and asks for one
// split of a multiprocessor's memory, as much of it shared as there can be, for all kernels alike:
// where it must change, no block of the next kernel joins those of the one before.
template <typename Args>
cudaError_t LoadKernel(void (*kernel)(Args)) {
  constexpr int kMostShared = 100;  // per cent
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kMostShared);
}
// Several; the first error.
template <typename... Args>
cudaError_t LoadKernels(void (*... kernels)(Args)) {
  cudaError_t error = cudaSuccess;
  ((error = error == cudaSuccess ? LoadKernel(kernels) : error), ...);
  return error;
}

// LoadKernel, and lets it have more than 48 KiB of dynamic shared memory.
template <typename Args>
cudaError_t AllowSharedMemory(void (*kernel)(Args), size_t bytes) {
  const cudaError_t error = LoadKernel(kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_LAUNCH_H_
