#include "tests/benchmarks/load/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tlm::bench {
namespace {

constexpr int kWidth = 30;
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(std::string title)
    : terminal_(isatty(STDERR_FILENO) == 1), title_(std::move(title)) {}

ProgressBar::~ProgressBar() {
  if (terminal_) std::fputs(kClearLine, stderr);
}

bool ProgressBar::ItIsTime() {
  if (!terminal_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kInterval;
  return true;
}

void ProgressBar::Draw(double done, std::string_view situation) const {
  const double share = std::clamp(done, 0.0, 1.0);
  const auto full = static_cast<int>(share * kWidth);
  fmt::print(stderr, "{}{} [{:#>{}}{:->{}}] {:3.0f} %  {}", kClearLine, title_, "", full, "",
             kWidth - full, 100 * share, situation);
  std::fflush(stderr);
}

}  // namespace tlm::bench
