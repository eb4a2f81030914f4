// Names the kernels' element types.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_
#define TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_

namespace tlm {

// kF8: E4M3 with a scale for every row (model/tensor/fp8.h); only for keys and values.
enum class Storage { kF32, kBF16, kF16, kF8 };

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_
