// Element types as the kernels see them.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_
#define TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_

namespace tlm {

enum class Storage { kF32, kBF16, kF16 };

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_STORAGE_H_
