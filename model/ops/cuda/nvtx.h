// Named stretches of the host's work in a profiler's time line.
#ifndef TLM_MODEL_OPS_CUDA_NVTX_H_
#define TLM_MODEL_OPS_CUDA_NVTX_H_

#include <cuda_runtime.h>

// With the toolkit's own runtime alone: the emulator has no profiler.
#if defined(__CUDA_RUNTIME_API_H__) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TLM_INTERNAL_NVTX 1
#else
#define TLM_INTERNAL_NVTX 0
#endif

namespace tlm {

// From its construction to the end of its scope. `name` outlives it; no cost without a profiler.
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

#endif  // TLM_MODEL_OPS_CUDA_NVTX_H_
