#define TLM_ISA_NAMESPACE scan_portable
#define TLM_ISA_TABLE PortableScanKernels
#define TLM_ISA_NAME "portable"
#include "model/sampling/scan_kernels.inc"
