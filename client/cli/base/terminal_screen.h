// A whole terminal to draw on, given back as it was.
#ifndef TLM_CLIENT_CLI_BASE_TERMINAL_SCREEN_H_
#define TLM_CLIENT_CLI_BASE_TERMINAL_SCREEN_H_

#include <termios.h>

#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/base/styled_line.h"
#include "client/cli/base/terminal_size.h"

namespace tlm::cli {

// While one of these lives, the terminal shows its alternate screen without a cursor; keys come one
// by one and are not shown, and of the keys that are signals only Ctrl-C is left. Not thread-safe.
class TerminalScreen {
 public:
  // `input` is -1 when no keys are to be read; `output` is a terminal.
  TerminalScreen(int input, int output);
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  TerminalSize size() const { return TerminalSizeOf(output_); }

  // Shows these lines and nothing else. A terminal that takes nothing at the moment is left as it
  // is.
  void Draw(const std::vector<StyledLine>& lines);

  enum class Event { kNone, kKey, kWake, kClosed };

  // Waits for a key (in `key`), for something to read from `wake`, for the terminal's end, or until
  // `timeout` is over.
  Event Wait(absl::Duration timeout, int wake, char* key);

 private:
  void SetUpKeys();
  void Write(std::string_view bytes) const;

  const int input_;
  const int output_;
  std::optional<termios> saved_;  // none when the input is no terminal
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TERMINAL_SCREEN_H_
