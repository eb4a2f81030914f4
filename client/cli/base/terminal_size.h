// How much a terminal shows.
#ifndef TLM_CLIENT_CLI_BASE_TERMINAL_SIZE_H_
#define TLM_CLIENT_CLI_BASE_TERMINAL_SIZE_H_

#include <cstddef>

namespace tlm::cli {

struct TerminalSize {
  size_t rows = 24;
  size_t columns = 80;

  bool operator==(const TerminalSize&) const = default;
};

// Of the terminal behind a file descriptor, now; 24 by 80 where it does not say.
TerminalSize TerminalSizeOf(int descriptor);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TERMINAL_SIZE_H_
