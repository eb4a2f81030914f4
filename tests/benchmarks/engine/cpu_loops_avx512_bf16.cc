#define TLM_ISA_NAMESPACE cpu_loops_avx512_bf16
#define TLM_ISA_LOOPS kAvx512Bf16Loops
#include "tests/benchmarks/engine/cpu_loops.inc"
