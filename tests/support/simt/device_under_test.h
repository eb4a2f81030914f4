// The device that tests of the CUDA backend's sources run on: the emulated one (emulator.h),
// or a GPU (tests/gpu/kernels). The same tests are linked with one or the other; what only the
// emulated device can be told or asked is a no-op on a GPU, so that no test has to know more than
// RunsOnGpu().
#ifndef TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_
#define TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/support/simt/emulator.h"
#include "tests/support/simt/mma_model.h"

namespace tlm {

// Whether a GPU computes: for tests that go farther where computing is cheap.
bool RunsOnGpu();

// Whether a kernel may begin before the one before it has ended: what SetKernelOverlap may be told.
bool DeviceOverlapsKernels();

// What mma.sync computes with.
simt::MmaUnit MatrixUnitUnderTest();

// simt::emulated::Configure.
void ConfigureDevice(const simt::emulated::Options& options);

// simt::emulated::FailAllocationAfter; false on a GPU, whose allocations succeed.
bool FailDeviceAllocationAfter(int successes);

// For what makes a kernel fail, while it lives; null on a GPU, which such a failure ends.
std::unique_ptr<simt::emulated::FailureRecorder> RecordDeviceFailures();

// Allocations alive; 0 on a GPU.
size_t DeviceAllocations();

// What the device has done since it was made.
class DeviceWatch {
 public:
  DeviceWatch();
  // Fails the test unless a block began before the kernel ahead of its own had ended.
  void ExpectOverlap() const;
  // Fails the test if a kernel was run.
  void ExpectNoKernels() const;
  // That were run; 0 on a GPU.
  uint64_t kernels() const;
  // That were loaded and had not been since ConfigureDevice; 0 on a GPU.
  uint64_t loaded_kernels() const;
  // Instructions of the tensor cores; 0 on a GPU.
  uint64_t mma() const;
  // Fails the test unless there were just so many graph launches, allocations and synchronizations;
  // `counts` has them alone.
  void ExpectCounts(const simt::emulated::Counts& counts) const;

 private:
  simt::emulated::Counts before_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SIMT_DEVICE_UNDER_TEST_H_
