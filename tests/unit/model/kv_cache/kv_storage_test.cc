#include "model/kv_cache/kv_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "model/ops/cpu/cpu_device.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(KvStorageTest, ABlockHasThePartsOfAllLayersInARow) {
  CpuDevice device("test", "portable");
  auto storage = KvStorage::Create(device, {3, 2, 16, DType::kF32}, 5);
  ASSERT_THAT(storage, IsOk());
  const size_t part = size_t{2} * 2 * 16 * kBlockTokens * sizeof(float);
  EXPECT_EQ(storage->bytes(), 5 * 3 * part);
  // Every part of every block is written once, by its layer.
  for (int64_t index = 0; index < 3; ++index) {
    const KvLayer layer = storage->layer(index);
    EXPECT_EQ(layer.block_bytes(), part);
    EXPECT_EQ(layer.stride_bytes(), 3 * part);
    for (size_t block = 0; block < 5; ++block) {
      std::fill_n(static_cast<std::byte*>(layer.data) + block * layer.stride_bytes(), part,
                  static_cast<std::byte>(1 + 10 * block + static_cast<size_t>(index)));
    }
  }
  for (BlockId block = 0; block < 5; ++block) {
    for (size_t index = 0; index < 3; ++index) {
      const std::byte* const begin = storage->block(block) + index * part;
      EXPECT_EQ(std::count(begin, begin + part,
                           static_cast<std::byte>(1 + 10 * static_cast<size_t>(block) + index)),
                static_cast<ptrdiff_t>(part));
    }
  }
}

TEST(KvStorageTest, EightBitRowsHaveAScaleEach) {
  const KvShape shape{3, 2, 16, DType::kF8E4M3};
  EXPECT_EQ(shape.bytes_per_token(), size_t{2} * 3 * 2 * (16 + 1));
  CpuDevice device("test", "portable");
  auto storage = KvStorage::Create(device, shape, 5);
  ASSERT_THAT(storage, IsOk());
  EXPECT_EQ(storage->bytes(), 5 * kBlockTokens * shape.bytes_per_token());
  const KvLayer layer = storage->layer(1);
  EXPECT_EQ(layer.head_bytes(), size_t{kBlockTokens} * (16 + 1));
  EXPECT_EQ(layer.block_bytes(), 4 * layer.head_bytes());
}

}  // namespace
}  // namespace tlm
