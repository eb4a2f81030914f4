#include "client/cli/base/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view SequenceOf(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kGood:
      return "\x1b[32m";
    case Style::kWarning:
      return "\x1b[33m";
    case Style::kBad:
      return "\x1b[31m";
  }
  return "";
}

// Returns as much of the beginning as fits into `columns`.
std::string Cut(const std::string& text, size_t columns) {
  constexpr size_t kEllipsis = 3;
  if (DisplayWidth(text) <= columns) return text;
  if (columns <= kEllipsis) return std::string(columns, '.');
  return Shortened(text, columns);
}

// Alternate screen on, cursor off, no line wrap; and the reverse.
constexpr std::string_view kBegin = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kEnd = "\x1b[?7h\x1b[?25h\x1b[?1049l";

constexpr int kWriteTimeoutMs = 1000;

constexpr size_t kBarColumns = 24;
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

TerminalSize TerminalSizeOf(int descriptor) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

std::string Styled(std::string_view text, Style style) {
  const std::string_view sequence = SequenceOf(style);
  return fmt::format("{}{}{}", sequence, text, sequence.empty() ? "" : kReset);
}

StyledLine& StyledLine::Add(std::string_view text, Style style) {
  pieces_.push_back({OneLine(text), style});
  width_ += DisplayWidth(pieces_.back().text);
  return *this;
}

std::string StyledLine::text() const {
  std::string text;
  for (const Piece& piece : pieces_) text += piece.text;
  return text;
}

std::string StyledLine::ForTerminal(size_t columns) const {
  std::string line;
  for (const Piece& piece : pieces_) {
    const std::string shown = Cut(piece.text, columns);
    columns -= DisplayWidth(shown);
    if (shown.empty()) continue;
    line += Styled(shown, piece.style);
  }
  return line;
}

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
  // A process that is stopped, or dumps core, does not restore the terminal.
  settings.c_cc[VSUSP] = _POSIX_VDISABLE;
  settings.c_cc[VQUIT] = _POSIX_VDISABLE;
  tcsetattr(input_, TCSAFLUSH, &settings);
}

void TerminalScreen::Draw(const std::vector<StyledLine>& lines) {
  const size_t columns = size().columns;
  // Overwrites each line and clears its rest, then clears what is below: no flicker.
  std::string frame = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) frame += "\r\n";
    frame += lines[i].ForTerminal(columns);
    // With the cursor on the last column it would clear the last character.
    if (lines[i].width() < columns) frame += "\x1b[K";
  }
  frame += "\x1b[J";
  Write(frame);
}

TerminalScreen::Event TerminalScreen::Wait(absl::Duration timeout, char* key) {
  pollfd ready = {input_, POLLIN, 0};
  const auto timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(&ready, 1, timeout_ms) <= 0) return Event::kNone;
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

ProgressLine::~ProgressLine() {
  if (is_terminal_) *out_ << kClearLine << std::flush;
}

void ProgressLine::Show(double done, std::string_view text) {
  if (!is_terminal_) return;
  const double share = std::clamp(done, 0.0, 1.0);
  const auto full = static_cast<size_t>(share * kBarColumns);
  const std::string line = fmt::format("[{}{}] {:3.0f} %  {}", std::string(full, '#'),
                                       std::string(kBarColumns - full, '-'), 100 * share, text);
  // The last column stays free: some terminals wrap to the next line after it.
  const size_t columns = std::max<size_t>(TerminalSizeOf(STDERR_FILENO).columns, 4) - 1;
  *out_ << kClearLine << Shortened(line, columns) << std::flush;
}

}  // namespace tlm::cli
