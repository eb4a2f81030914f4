#include "server/observe/process_figures.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tlm {
namespace {

TEST(ProcessFiguresTest, ReadsWhatTheSystemKnows) {
  const ProcessFigures figures = ReadProcessFigures();
  EXPECT_GT(figures.resident_bytes, 1 << 20);
  EXPECT_GE(figures.virtual_bytes, figures.resident_bytes);
  EXPECT_GE(figures.threads, 1);
  EXPECT_GE(figures.max_fds, figures.open_fds);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(figures.start_time, now + 2);
  EXPECT_GT(figures.start_time, now - 24 * 3600);
}

TEST(ProcessFiguresTest, CountsDescriptors) {
  const double before = ReadProcessFigures().open_fds;
  std::vector<int> fds;
  for (int i = 0; i < 5; ++i) fds.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadProcessFigures().open_fds, before + 5);
  for (const int fd : fds) close(fd);
  EXPECT_EQ(ReadProcessFigures().open_fds, before);
}

TEST(ProcessFiguresTest, CpuTimeGrows) {
  const double before = ReadProcessFigures().cpu_seconds;
  volatile double sum = 0;
  while (ReadProcessFigures().cpu_seconds <= before) {
    for (int i = 0; i < 100'000; ++i) sum = sum + i;
  }
  EXPECT_GT(ReadProcessFigures().cpu_seconds, before);
}

}  // namespace
}  // namespace tlm
