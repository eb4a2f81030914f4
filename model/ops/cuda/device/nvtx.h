// Named ranges of host work in a profiler's timeline.
#ifndef TLM_MODEL_OPS_CUDA_DEVICE_NVTX_H_
#define TLM_MODEL_OPS_CUDA_DEVICE_NVTX_H_

#include <cuda_runtime.h>

// Used only with the toolkit's own runtime: the emulator has no profiler.
#if defined(__CUDA_RUNTIME_API_H__) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TLM_INTERNAL_NVTX 1
#else
#define TLM_INTERNAL_NVTX 0
#endif

namespace tlm {

// Lasts from its construction to the end of its scope. `name` must outlive it. Costs nothing
// without a profiler.
class NvtxRange {
 public:
#if TLM_INTERNAL_NVTX
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const char*) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_DEVICE_NVTX_H_
