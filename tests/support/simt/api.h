// Helpers of the files that implement <cuda_runtime.h>.
#ifndef TLM_TESTS_SUPPORT_SIMT_API_H_
#define TLM_TESTS_SUPPORT_SIMT_API_H_

#include <cuda_runtime.h>

#include <mutex>
#include <string>
#include <string_view>

#include "tests/support/simt/device.h"

namespace tlm::simt::emulated {

// Locks the device for one API call.
class Call {
 public:
  Call() : guard_(TheDevice().lock) {}

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// Returns the result of a call: `error`, or the error that a failed kernel left. Stores it for
// cudaGetLastError.
cudaError_t Answer(cudaError_t error);

// True if any stream is being captured; then calls that would wait or allocate are refused.
bool Capturing();

// Returns the kernel's name from the executable's symbols, or else the struct that it takes.
std::string KernelName(KernelAddress kernel, std::string_view signature);

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_API_H_
