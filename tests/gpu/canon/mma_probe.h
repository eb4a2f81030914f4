// Single instructions of the tensor cores, to see what they compute.
#ifndef TLM_TESTS_GPU_CANON_MMA_PROBE_H_
#define TLM_TESTS_GPU_CANON_MMA_PROBE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// out[t] = c[t] + a[t] b[t]^T for every tile t, by one mma.m16n8k16 each.
struct MmaProbeArgs {
  const uint16_t* a = nullptr;  // [tiles, 16, 16], device memory like all here
  const uint16_t* b = nullptr;  // [tiles, 8, 16]
  const float* c = nullptr;     // [tiles, 16, 8]
  float* out = nullptr;         // [tiles, 16, 8]
  int tiles = 0;
};

// dtype kBF16 or kF16, of a and b.
cudaError_t LaunchMmaProbe(const MmaProbeArgs& args, DType dtype, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_TESTS_GPU_CANON_MMA_PROBE_H_
