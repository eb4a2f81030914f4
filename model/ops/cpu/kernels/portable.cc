#define TLM_ISA_NAMESPACE cpu_portable
#define TLM_ISA_TABLE PortableKernels
#include "model/ops/cpu/kernels/kernels.inc"
