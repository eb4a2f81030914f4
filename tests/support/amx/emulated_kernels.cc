// The kernels of amx_bf16 on emulated AMX tiles.
#define TLM_ISA_NAMESPACE cpu_amx_bf16_emulated
#define TLM_ISA_TABLE EmulatedAmxVectorKernels
#define TLM_AMX_TILES "tests/support/amx/emulated_tiles.h"
#define TLM_AMX_TABLE EmulatedAmxKernels
#define TLM_AMX_PROBE EmulatedAmxVectorsAgree
#include "model/ops/cpu/kernels/amx.inc"
