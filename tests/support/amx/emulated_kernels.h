// The kernels of amx_bf16 on a tile unit that the host plays (tile_unit.h), for machines without
// one. They need AVX-512 and its BF16 and VNNI: Isa::kAvx512Bf16.
#ifndef TLM_TESTS_SUPPORT_AMX_PLAYED_KERNELS_H_
#define TLM_TESTS_SUPPORT_AMX_PLAYED_KERNELS_H_

#include "model/ops/cpu/kernels/kernels.h"

namespace tlm {

// As AmxVectorsAgree and AmxBf16Kernels.
bool PlayedAmxVectorsAgree();
const Kernels& PlayedAmxKernels(bool vectors_agree);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_AMX_PLAYED_KERNELS_H_
