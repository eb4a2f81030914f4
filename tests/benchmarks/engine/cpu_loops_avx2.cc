#define TLM_ISA_NAMESPACE cpu_loops_avx2
#define TLM_ISA_LOOPS kAvx2Loops
#include "tests/benchmarks/engine/cpu_loops.inc"
