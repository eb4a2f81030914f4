#include <gtest/gtest.h>

#include "tests/support/simt/device_under_test.h"

namespace tlm {

bool RunsOnGpu() { return false; }

bool DeviceOverlapsKernels() { return true; }

simt::MmaUnit MatrixUnitUnderTest() { return simt::kHopperMma; }

void ConfigureDevice(const simt::emulated::Options& options) { simt::emulated::Configure(options); }

bool FailDeviceAllocationAfter(int successes) {
  simt::emulated::FailAllocationAfter(successes);
  return true;
}

std::unique_ptr<simt::emulated::FailureRecorder> RecordDeviceFailures() {
  return std::make_unique<simt::emulated::FailureRecorder>();
}

size_t DeviceAllocations() { return simt::emulated::Allocations(); }

DeviceWatch::DeviceWatch() : before_(simt::emulated::ReadCounts()) {}

void DeviceWatch::ExpectOverlap() const {
  EXPECT_GT(simt::emulated::ReadCounts().early_blocks, before_.early_blocks);
}

void DeviceWatch::ExpectNoOverlap() const {
  EXPECT_EQ(simt::emulated::ReadCounts().early_blocks, before_.early_blocks);
}

void DeviceWatch::ExpectNoKernels() const { EXPECT_EQ(kernels(), 0u); }

uint64_t DeviceWatch::kernels() const {
  return simt::emulated::ReadCounts().kernels - before_.kernels;
}

uint64_t DeviceWatch::loaded_kernels() const {
  return simt::emulated::ReadCounts().loaded - before_.loaded;
}

uint64_t DeviceWatch::mma() const { return simt::emulated::ReadCounts().mma - before_.mma; }

void DeviceWatch::ExpectCounts(const simt::emulated::Counts& counts) const {
  const simt::emulated::Counts now = simt::emulated::ReadCounts();
  EXPECT_EQ(now.graph_launches - before_.graph_launches, counts.graph_launches);
  EXPECT_EQ(now.allocations - before_.allocations, counts.allocations);
  EXPECT_EQ(now.synchronizations - before_.synchronizations, counts.synchronizations);
}

}  // namespace tlm
