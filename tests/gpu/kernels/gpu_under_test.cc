// A GPU as the device under test, and no test where there is none.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/support/simt/device_under_test.h"

namespace tlm {
namespace {

int ComputeCapabilityMajor() {
  int major = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  return major;
}

class NeedsGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess) {
      GTEST_SKIP() << "skipped: there is no GPU: " << cudaGetErrorString(error);
    }
    if (devices == 0) GTEST_SKIP() << "skipped: there is no GPU";
    if (ComputeCapabilityMajor() < 8) {
      GTEST_SKIP() << "skipped: the GPU is older than compute capability 8.0";
    }
  }
};

// googletest takes it.
[[maybe_unused]] const ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace

bool RunsOnGpu() { return true; }

bool DeviceOverlapsKernels() { return ComputeCapabilityMajor() >= 9; }

simt::MmaUnit MatrixUnitUnderTest() {
  return ComputeCapabilityMajor() >= 9 ? simt::kHopperMma : simt::kAmpereMma;
}

void ConfigureDevice(const simt::emulated::Options&) {}

bool FailDeviceAllocationAfter(int) { return false; }

// Never called, but unique_ptr's destructor names it.
simt::emulated::FailureRecorder::~FailureRecorder() = default;
std::unique_ptr<simt::emulated::FailureRecorder> RecordDeviceFailures() { return nullptr; }

size_t DeviceAllocations() { return 0; }

DeviceWatch::DeviceWatch() = default;
void DeviceWatch::ExpectOverlap() const {}
void DeviceWatch::ExpectNoOverlap() const {}
void DeviceWatch::ExpectNoKernels() const {}
uint64_t DeviceWatch::kernels() const { return 0; }
uint64_t DeviceWatch::loaded_kernels() const { return 0; }
uint64_t DeviceWatch::mma() const { return 0; }
void DeviceWatch::ExpectCounts(const simt::emulated::Counts&) const {}

}  // namespace tlm
