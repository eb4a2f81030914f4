#include "model/sampling/scan_kernels.h"

namespace tlm {

std::vector<const ScanKernels*> AvailableScanKernels() {
  std::vector<const ScanKernels*> tables = {&PortableScanKernels()};
#if defined(__x86_64__)
  // The builtins also check that the operating system saves the wide registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return tables;
  tables.push_back(&Avx2ScanKernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    tables.push_back(&Avx512ScanKernels());
  }
#endif
  return tables;
}

const ScanKernels& FastestScanKernels() {
  static const ScanKernels& fastest = *AvailableScanKernels().back();
  return fastest;
}

}  // namespace tlm
