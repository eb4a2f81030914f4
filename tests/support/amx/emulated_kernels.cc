// The kernels of amx_bf16 on a tile unit that the host plays.
#define TLM_ISA_NAMESPACE cpu_amx_bf16_played
#define TLM_ISA_TABLE PlayedAmxVectorKernels
#define TLM_AMX_TILES "tests/support/amx/played_tiles.h"
#define TLM_AMX_TABLE PlayedAmxKernels
#define TLM_AMX_PROBE PlayedAmxVectorsAgree
#include "model/ops/cpu/kernels/amx.inc"
