#define TLM_ISA_NAMESPACE cpu_avx512_bf16
#define TLM_ISA_TABLE Avx512Bf16Kernels
#include "model/ops/cpu/kernels/kernels.inc"
