#define TLM_ISA_NAMESPACE cpu_loops_avx512
#define TLM_ISA_LOOPS kAvx512Loops
#include "tests/benchmarks/engine/cpu_loops.inc"
