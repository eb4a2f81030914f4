#define TLM_ISA_NAMESPACE cpu_amx_bf16
#define TLM_ISA_TABLE AmxBf16VectorKernels
#define TLM_AMX_TILES "model/ops/cpu/kernels/amx_tiles.h"
#define TLM_AMX_TABLE AmxBf16Kernels
#define TLM_AMX_PROBE AmxVectorsAgree
#include "model/ops/cpu/kernels/amx.inc"
