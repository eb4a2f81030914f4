#include "server/loading/weights_sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

class WeightsSha256Test : public ::testing::Test {
 protected:
  explicit WeightsSha256Test(int64_t elements = 100) {
    SafetensorsWriter writer;
    writer.Add("x", DType::kF32, {elements}, std::string(static_cast<size_t>(elements) * 4, 'x'));
    dir_.Write("model.safetensors", writer.Bytes());
  }
  Checkpoint Open() { return *Checkpoint::Open(dir_.path()); }

  const TempDir dir_;
};

TEST_F(WeightsSha256Test, OfSmallOnesIsKnownAtOnce) {
  const WeightsSha256 hash(Open());
  EXPECT_EQ(hash.Get(), *Open().Sha256());
}

TEST_F(WeightsSha256Test, OfLargeOnesIsKnownInTheEnd) {
  const WeightsSha256 hash(Open(), /*at_once_bytes=*/0);
  EXPECT_EQ(hash.Wait(), *Open().Sha256());
  EXPECT_EQ(hash.Get(), hash.Wait());
}

class LargeWeightsSha256Test : public WeightsSha256Test {
 protected:
  LargeWeightsSha256Test() : WeightsSha256Test(int64_t{8} << 20) {}
};

TEST_F(LargeWeightsSha256Test, MayEndBeforeItIsKnown) {
  for (int i = 0; i < 20; ++i) {
    const WeightsSha256 hash(Open(), /*at_once_bytes=*/0);
    const std::string hex = hash.Get();
    EXPECT_TRUE(hex.empty() || hex.size() == 64) << hex;
  }
}

}  // namespace
}  // namespace tlm
