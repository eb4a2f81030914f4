#define TLM_ISA_NAMESPACE cpu_avx512_vnni
#define TLM_QUANT_FUNCTION Avx512VnniMatMulQuant
#include "model/ops/cpu/kernels/quant_vnni.inc"
