#include "model/ops/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

size_t Allocated(const CpuDevice& device) {
  size_t sum = 0;
  for (const size_t bytes : device.AllocatedBytes()) sum += bytes;
  return sum;
}

bool SystemGivesLargePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  return modes.find("[madvise]") != std::string::npos ||
         modes.find("[always]") != std::string::npos;
}

TEST(CpuDeviceTest, MemoryIsZeroUpToItsLastByteAndGivenBack) {
  CpuDevice device("test", "portable");
  for (const size_t bytes : {size_t{1}, size_t{4096}, kLargePage - 1, kLargePage, kLargePage + 1,
                             3 * kLargePage - 5000, 64 * kLargePage - 1, 65 * kLargePage + 4097}) {
    auto buffer = device.Allocate(bytes, MemoryPurpose::kWeights);
    ASSERT_THAT(buffer, IsOk());
    ASSERT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(Allocated(device), bytes);
    const auto* const data = buffer->as<unsigned char>();
    for (size_t i = 0; i < bytes; i += 1021) ASSERT_EQ(data[i], 0) << bytes;
    buffer->as<unsigned char>()[bytes - 1] = 7;
    EXPECT_EQ(data[bytes - 1], 7);
    *buffer = Buffer();
    EXPECT_EQ(Allocated(device), 0u);
  }
}

TEST(CpuDeviceTest, LargeBuffersBeginWhereALargePageCan) {
  CpuDevice device("test", "portable");
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < 20; ++i) {
    auto buffer = device.Allocate(kLargePage + i * 12345, MemoryPurpose::kKvCache);
    ASSERT_THAT(buffer, IsOk());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kLargePage, 0u);
    std::memset(buffer->data(), static_cast<int>(i) + 1, buffer->bytes());
    buffers.push_back(*std::move(buffer));
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto* const data = buffers[i].as<unsigned char>();
    EXPECT_EQ(std::count(data, data + buffers[i].bytes(), i + 1), buffers[i].bytes());
  }
}

// Where only their beginning is touched, buffers of rows take no large page; weights do.
TEST(CpuDeviceTest, TheFirstRowsTakeSmallPages) {
  CpuDevice device("test", "portable");
  for (const MemoryPurpose purpose :
       {MemoryPurpose::kActivations, MemoryPurpose::kLogits, MemoryPurpose::kRuntime}) {
    auto buffer = device.Allocate(8 * kLargePage, purpose);
    ASSERT_THAT(buffer, IsOk());
    auto* const data = buffer->as<unsigned char>();
    data[0] = 1;
    data[kLargePage - 1] = 1;
    const long page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> pages(kLargePage / static_cast<size_t>(page));
    ASSERT_EQ(mincore(data, kLargePage, pages.data()), 0);
    EXPECT_EQ(std::ranges::count_if(pages, [](unsigned char flags) { return (flags & 1) != 0; }),
              2);
    std::memset(data, 7, buffer->bytes());
    EXPECT_EQ(std::count(data, data + buffer->bytes(), 7), buffer->bytes());
  }
}

TEST(CpuDeviceTest, MoreThanTheMachineHasIsRefused) {
  CpuDevice device("test", "portable");
  EXPECT_THAT(device.Allocate(device.info().total_bytes + 1, MemoryPurpose::kWeights),
              IsResourceExhausted("the machine has"));
  EXPECT_EQ(Allocated(device), 0u);
}

TEST(CpuDeviceTest, TellsOfLargePagesWhereTheSystemGivesThem) {
  if (!SystemGivesLargePages()) GTEST_SKIP() << "the system gives no large pages";
  CpuDevice device("test", "portable");
  auto buffer = device.Allocate(16 * kLargePage, MemoryPurpose::kWeights);
  ASSERT_THAT(buffer, IsOk());
  std::memset(buffer->data(), 1, buffer->bytes());
  const std::string told = device.LargePages();
  // A system without a free one to give is no fault.
  if (told == "no large pages") GTEST_SKIP() << "the system has none left";
  EXPECT_NE(told.find("MiB in large pages"), std::string::npos) << told;
  EXPECT_GE(std::stoi(told), 2) << told;
}

}  // namespace
}  // namespace tlm
