// The device on which tests of the CUDA backend's sources run: the emulated one (emulator.h), or a
// GPU (tests/gpu/kernels). The same tests are linked with either. Functions that only the emulated
// device supports do nothing on a GPU, so a test needs to know no more than RunsOnGpu().
#ifndef TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_
#define TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/support/simt/emulator.h"
#include "tests/support/simt/mma_model.h"

namespace tlm {

// True if the device is a GPU: for tests that do more where computing is cheap.
bool RunsOnGpu();

// True if a kernel may begin before the previous one has ended: the argument for SetKernelOverlap.
bool DeviceOverlapsKernels();

// Returns the arithmetic of the device's mma.sync.
simt::MmaUnit MatrixUnitUnderTest();

// Calls simt::emulated::Configure.
void ConfigureDevice(const simt::emulated::Options& options);

// Calls simt::emulated::FailAllocationAfter; returns false on a GPU, whose allocations succeed.
bool FailDeviceAllocationAfter(int successes);

// For tests that make a kernel fail: keep the result during the failure. Null on a GPU, which such
// a failure would make unusable.
std::unique_ptr<simt::emulated::FailureRecorder> RecordDeviceFailures();

// Returns the number of live allocations; 0 on a GPU.
size_t DeviceAllocations();

// Counts the device's actions since this object was created.
class DeviceWatch {
 public:
  DeviceWatch();
  // Fails the test unless a block began before the previous kernel had ended.
  void ExpectOverlap() const;
  // Fails the test if a block did.
  void ExpectNoOverlap() const;
  // Fails the test if a kernel was run.
  void ExpectNoKernels() const;
  // Returns the number of kernels that ran; 0 on a GPU.
  uint64_t kernels() const;
  // Returns the number of kernels loaded for the first time since ConfigureDevice; 0 on a GPU.
  uint64_t loaded_kernels() const;
  // Returns the number of mma instructions; 0 on a GPU.
  uint64_t mma() const;
  // Fails the test unless there were exactly as many graph launches, allocations and
  // synchronizations as in `counts`, which sets only these.
  void ExpectCounts(const simt::emulated::Counts& counts) const;

 private:
  simt::emulated::Counts before_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_
