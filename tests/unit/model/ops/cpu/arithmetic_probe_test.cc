#include "model/ops/cpu/arithmetic_probe.h"

#include <gtest/gtest.h>

#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "tests/support/amx/emulated_kernels.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(ArithmeticProbeTest, OnlyProcessorsWithProductsOfTheirOwnHaveOne) {
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(IsaName(isa));
    const auto ops = CpuOps::Create(1, isa);
    ASSERT_THAT(ops, IsOk());
    const std::string& probe = (*ops)->device().info().arithmetic_probe;
    EXPECT_EQ(probe.size(), HasBf16Products(isa) ? 16u : 0u);
    // What it took is given back.
    for (const size_t bytes : (*ops)->device().AllocatedBytes()) EXPECT_EQ(bytes, 0u);
    const auto more_threads = CpuOps::Create(3, isa);
    ASSERT_THAT(more_threads, IsOk());
    EXPECT_EQ((*more_threads)->device().info().arithmetic_probe, probe);
  }
}

// A chain of pairs and the sums of even and odd inputs differ in their last bits.
TEST(ArithmeticProbeTest, TellsOrdersOfAdditionApart) {
  if (!HasBf16Products(AvailableIsas().back())) GTEST_SKIP() << "no AVX-512 with BF16";
  CpuDevice device("host", "test");
  const auto pairs = ArithmeticProbe(Avx512Bf16Kernels(), device);
  const auto tiles = ArithmeticProbe(EmulatedAmxKernels(false), device);
  const auto tiles_and_vectors = ArithmeticProbe(EmulatedAmxKernels(true), device);
  ASSERT_THAT(pairs, IsOk());
  ASSERT_THAT(tiles, IsOk());
  ASSERT_THAT(tiles_and_vectors, IsOk());
  EXPECT_NE(*pairs, *tiles);
  EXPECT_EQ(*tiles, *tiles_and_vectors);
}

}  // namespace
}  // namespace tlm
