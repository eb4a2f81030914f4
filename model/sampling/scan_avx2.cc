#define TLM_ISA_NAMESPACE scan_avx2
#define TLM_ISA_TABLE Avx2ScanKernels
#define TLM_ISA_NAME "avx2"
#include "model/sampling/scan_kernels.inc"
