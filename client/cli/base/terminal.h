// Terminals: size, styled lines, a full screen, a progress line.
#ifndef TLM_CLIENT_CLI_BASE_TERMINAL_H_
#define TLM_CLIENT_CLI_BASE_TERMINAL_H_

#include <termios.h>

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace tlm::cli {

struct TerminalSize {
  size_t rows = 24;
  size_t columns = 80;

  bool operator==(const TerminalSize&) const = default;
};

// Returns the current size of the terminal at a file descriptor; 24 x 80 if it is unknown.
TerminalSize TerminalSizeOf(int descriptor);

enum class Style { kPlain, kBold, kDim, kGood, kWarning, kBad };

// Returns `text`, which must be Printable, with the escape sequences of the style.
std::string Styled(std::string_view text, Style style);

class StyledLine {
 public:
  StyledLine() = default;
  explicit StyledLine(std::string_view text, Style style = Style::kPlain) { Add(text, style); }

  // Adds `text`: control characters are shown as \xNN, line breaks and tabs as spaces. Returns this
  // line.
  StyledLine& Add(std::string_view text, Style style = Style::kPlain);

  // Returns the columns that it takes on a terminal.
  size_t width() const { return width_; }
  std::string text() const;

  // Returns the line with escape sequences for the styles, cut to `columns`.
  std::string ForTerminal(size_t columns) const;

 private:
  struct Piece {
    std::string text;
    Style style;
  };
  std::vector<Piece> pieces_;
  size_t width_ = 0;
};

// While it exists, the terminal shows its alternate screen without a cursor, keys are read one by
// one without echo, and Ctrl-C is the only key that sends a signal. Not thread-safe.
class TerminalScreen {
 public:
  // `input` is -1 to read no keys; `output` must be a terminal.
  TerminalScreen(int input, int output);
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  TerminalSize size() const { return TerminalSizeOf(output_); }

  // Replaces the screen's contents. Does nothing while the terminal accepts no output.
  void Draw(const std::vector<StyledLine>& lines);

  enum class Event { kNone, kKey, kClosed };

  // Waits until a key is pressed (stored in `key`), the terminal is closed, or `timeout` has
  // passed.
  Event Wait(absl::Duration timeout, char* key);

 private:
  void SetUpKeys();
  void Write(std::string_view bytes) const;

  const int input_;
  const int output_;
  std::optional<termios> saved_;  // nullopt if the input is not a terminal
};

// A progress bar on one line of `out` (standard error), shown only if it is a terminal. The
// destructor clears the line. Not thread-safe.
class ProgressLine {
 public:
  ProgressLine(std::ostream* out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `done` in [0, 1]; `text` follows the bar, cut at the terminal's width.
  void Show(double done, std::string_view text);

 private:
  std::ostream* const out_;
  const bool is_terminal_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TERMINAL_H_
