// Division that rounds up, for host code that sizes grids and tiles.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_CEIL_DIV_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_CEIL_DIV_H_

#include <cstdint>

namespace tlm {

constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_CEIL_DIV_H_
