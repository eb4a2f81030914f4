#define TLM_ISA_NAMESPACE scan_avx512
#define TLM_ISA_TABLE Avx512ScanKernels
#define TLM_ISA_NAME "avx512"
#include "model/sampling/scan_kernels.inc"
