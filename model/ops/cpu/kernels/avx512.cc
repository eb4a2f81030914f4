#define TLM_ISA_NAMESPACE cpu_avx512
#define TLM_ISA_TABLE Avx512Kernels
#include "model/ops/cpu/kernels/kernels.inc"
