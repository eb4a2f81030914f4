#define TLM_ISA_NAMESPACE cpu_avx2
#define TLM_ISA_TABLE Avx2Kernels
#include "model/ops/cpu/kernels/kernels.inc"
