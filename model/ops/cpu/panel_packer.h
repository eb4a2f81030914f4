// Packs host weights into the panels of the kernels.
#ifndef TLM_MODEL_OPS_CPU_PANEL_PACKER_H_
#define TLM_MODEL_OPS_CPU_PANEL_PACKER_H_

#include <cstddef>
#include <cstdint>

#include "model/ops/cpu/matrix_parts.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Writes panels [begin, end), stored as `dtype` (F32, BF16 or F16; see kernels/matmul.h), to `out`,
// `panel_bytes` apart. Missing outputs are 0; padding after the inputs is not written. Returns
// false if a stored value is not finite. Thread-safe.
bool PackPanels(const MatrixParts& parts, int64_t begin, int64_t end, DType dtype, std::byte* out,
                size_t panel_bytes);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PANEL_PACKER_H_
