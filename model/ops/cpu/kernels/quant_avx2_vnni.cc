#define TLM_ISA_NAMESPACE cpu_avx2_vnni
#define TLM_QUANT_FUNCTION Avx2VnniMatMulQuant
#include "model/ops/cpu/kernels/quant_vnni.inc"
