// Lays out the screen of `tlm top`.
#ifndef TLM_CLIENT_CLI_TOP_VIEW_H_
#define TLM_CLIENT_CLI_TOP_VIEW_H_

#include <cstddef>
#include <deque>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/base/terminal.h"
#include "client/cli/load_monitor.h"

namespace tlm::cli {

struct TopLayout {
  TerminalSize size;
  bool unicode = true;        // blocks of eight heights; otherwise ASCII
  absl::Time wall_time = {};  // shown in the first line
};

// Returns the whole screen, at most layout.size.rows lines: a block per server if all fit,
// otherwise a row per server, and the number of omitted servers. With few columns, less important
// values are omitted; numbers are never cut.
std::vector<StyledLine> TopLines(const std::vector<ServerLoad>& servers, absl::Time now,
                                 const TopLayout& layout);

// Prints headings and a row per server, for output that is not a terminal.
void PrintTopTable(const std::vector<ServerLoad>& servers, std::ostream& out);

// Draws the last `columns` values as a bar chart of one line, scaled to the largest value and
// right-aligned.
std::string Sparkline(const std::deque<double>& values, size_t columns, bool unicode);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_TOP_VIEW_H_
