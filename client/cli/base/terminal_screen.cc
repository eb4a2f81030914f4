#include "client/cli/base/terminal_screen.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tlm::cli {
namespace {

// Alternate screen on, cursor off, no line breaks at the right edge; and back.
constexpr std::string_view kBegin = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kEnd = "\x1b[?7h\x1b[?25h\x1b[?1049l";

constexpr int kWriteTimeoutMs = 1000;

}  // namespace

TerminalScreen::TerminalScreen(int input, int output) : input_(input), output_(output) {
  SetUpKeys();
  Write(kBegin);
}

TerminalScreen::~TerminalScreen() {
  Write(kEnd);
  if (saved_) tcsetattr(input_, TCSAFLUSH, &*saved_);
}

void TerminalScreen::SetUpKeys() {
  termios settings;
  if (input_ < 0 || tcgetattr(input_, &settings) != 0) return;
  saved_ = settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Ctrl-S would stop the terminal's output, and with it the program.
  settings.c_iflag &= ~static_cast<tcflag_t>(IXON);
  settings.c_cc[VMIN] = 1;
  settings.c_cc[VTIME] = 0;
  // A program that is stopped, or dumps core, does not give the terminal back.
  settings.c_cc[VSUSP] = _POSIX_VDISABLE;
  settings.c_cc[VQUIT] = _POSIX_VDISABLE;
  tcsetattr(input_, TCSAFLUSH, &settings);
}

void TerminalScreen::Draw(const std::vector<StyledLine>& lines) {
  const size_t columns = size().columns;
  // Each line is written over and its rest cleared, then what is below: nothing flickers.
  std::string frame = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) frame += "\r\n";
    frame += lines[i].ForTerminal(columns);
    // On the last column it would clear the last character.
    if (lines[i].width() < columns) frame += "\x1b[K";
  }
  frame += "\x1b[J";
  Write(frame);
}

TerminalScreen::Event TerminalScreen::Wait(absl::Duration timeout, int wake, char* key) {
  pollfd ready[] = {{wake, POLLIN, 0}, {input_, POLLIN, 0}};
  const auto timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(ready, 2, timeout_ms) <= 0) return Event::kNone;
  if (ready[0].revents != 0) return Event::kWake;
  if (read(input_, key, 1) == 1) return Event::kKey;
  return Event::kClosed;
}

void TerminalScreen::Write(std::string_view bytes) const {
  while (!bytes.empty()) {
    pollfd ready = {output_, POLLOUT, 0};
    if (poll(&ready, 1, kWriteTimeoutMs) <= 0) return;
    const ssize_t written = write(output_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace tlm::cli
