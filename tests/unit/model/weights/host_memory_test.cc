#include "model/weights/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

constexpr char kMeminfo[] = "MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:  2000 kB\n";

class HostMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(dir_.File(name)).parent_path());
    dir_.Write(name, content);
  }
  uint64_t Available() const { return AvailableHostMemoryBelow(dir_.path() + "/"); }

  TempDir dir_;
};

TEST_F(HostMemoryTest, IsWhatTheKernelCallsAvailable) {
  Write("proc/meminfo", kMeminfo);
  EXPECT_EQ(Available(), 2000u * 1024);
}

TEST_F(HostMemoryTest, IsAllMemoryWhereTheKernelDoesNotSay) {
  EXPECT_EQ(Available(), static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST_F(HostMemoryTest, IsLessInATightControlGroup) {
  Write("proc/meminfo", kMeminfo);
  Write("sys/fs/cgroup/memory.max", "1000000\n");
  Write("sys/fs/cgroup/memory.stat", "anon 300000\nfile 500000\nkernel 1\nshmem 1000\n");
  EXPECT_EQ(Available(), 1000000u - 300000 - 1000);
}

TEST_F(HostMemoryTest, TheTightestGroupAboveCounts) {
  Write("proc/meminfo", kMeminfo);
  Write("proc/self/cgroup", "1:name=old:/x\n0::/outer/inner\n");
  Write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("sys/fs/cgroup/outer/memory.max", "500000\n");
  Write("sys/fs/cgroup/outer/memory.stat", "anon 600000\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(HostMemoryTest, ThisMachineHasSome) { EXPECT_GT(AvailableHostMemory(), 1u << 20); }

}  // namespace
}  // namespace tlm
