// The tables of scan_kernels.h that this machine can run.
#ifndef TLM_MODEL_SAMPLING_SCAN_DISPATCH_H_
#define TLM_MODEL_SAMPLING_SCAN_DISPATCH_H_

#include <vector>

#include "model/sampling/scan_kernels.h"

namespace tlm {

// From the slowest to the fastest; the first is the portable one.
std::vector<const ScanKernels*> AvailableScanKernels();
const ScanKernels& FastestScanKernels();

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SCAN_DISPATCH_H_
