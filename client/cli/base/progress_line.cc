#include "client/cli/base/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "client/cli/base/terminal_size.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

constexpr size_t kBarColumns = 24;
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

ProgressLine::~ProgressLine() {
  if (console_->err_is_terminal) console_->err << kClearLine << std::flush;
}

void ProgressLine::Show(double done, std::string_view situation) {
  if (!console_->err_is_terminal) return;
  const double share = std::clamp(done, 0.0, 1.0);
  const auto full = static_cast<size_t>(share * kBarColumns);
  const std::string line =
      fmt::format("[{}{}] {:3.0f} %  {}", std::string(full, '#'),
                  std::string(kBarColumns - full, '-'), 100 * share, situation);
  // The last column stays free: some terminals go on to the next line in it.
  const size_t columns = std::max<size_t>(TerminalSizeOf(STDERR_FILENO).columns, 4) - 1;
  console_->err << kClearLine << Shortened(line, columns) << std::flush;
}

}  // namespace tlm::cli
