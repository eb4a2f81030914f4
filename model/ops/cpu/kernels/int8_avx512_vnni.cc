#define TLM_ISA_NAMESPACE cpu_avx512_vnni
#define TLM_INT8_FUNCTION Avx512VnniMatMulInt8
#include "model/ops/cpu/kernels/int8_vnni.inc"
