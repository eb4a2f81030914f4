// The kernels of amx_bf16 on emulated AMX tiles (tile_unit.h), for machines without AMX. They need
// AVX-512 with its BF16 and VNNI extensions: Isa::kAvx512Bf16.
#ifndef TLM_TESTS_SUPPORT_AMX_EMULATED_KERNELS_H_
#define TLM_TESTS_SUPPORT_AMX_EMULATED_KERNELS_H_

#include "model/ops/cpu/kernels/kernels.h"

namespace tlm {

// These correspond to AmxVectorsAgree and AmxBf16Kernels.
bool EmulatedAmxVectorsAgree();
const Kernels& EmulatedAmxKernels(bool vectors_agree);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_AMX_EMULATED_KERNELS_H_
