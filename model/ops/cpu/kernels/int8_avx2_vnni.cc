#define TLM_ISA_NAMESPACE cpu_avx2_vnni
#define TLM_INT8_FUNCTION Avx2VnniMatMulInt8
#include "model/ops/cpu/kernels/int8_vnni.inc"
