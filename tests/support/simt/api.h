// What the files that implement <cuda_runtime.h> share.
#ifndef TLM_TESTS_SUPPORT_SIMT_API_H_
#define TLM_TESTS_SUPPORT_SIMT_API_H_

#include <cuda_runtime.h>

#include <mutex>
#include <string>
#include <string_view>

#include "tests/support/simt/device.h"

namespace tlm::simt::emulated {

// Holds the device for one call.
class Call {
 public:
  Call() : guard_(TheDevice().lock) {}

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// What a call returns: `error`, or the error that a failed kernel left; remembered for
// cudaGetLastError.
cudaError_t Answer(cudaError_t error);

// Whether any stream is being captured: calls that would wait or allocate are refused then.
bool Capturing();

// The kernel's function by the executable's own symbols, or else the struct it takes.
std::string KernelName(KernelAddress kernel, std::string_view signature);

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_API_H_
