// What `tlm top` shows.
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
  bool unicode = true;        // blocks of eight heights; else ASCII
  absl::Time wall_time = {};  // shown in the first line
};

// The whole screen, at most layout.size.rows lines: a block a server where all of them fit, else a
// row a server, and the number of those that do not fit even so. On few columns what is less
// important is left out, never a part of a number.
std::vector<StyledLine> TopLines(const std::vector<ServerLoad>& servers, absl::Time now,
                                 const TopLayout& layout);

// A row a server, with headings: for what is no terminal.
void PrintTopTable(const std::vector<ServerLoad>& servers, std::ostream& out);

// The last `columns` values as columns of text as high as they are, the highest of them full; fewer
// values stand on the right.
std::string Sparkline(const std::deque<double>& values, size_t columns, bool unicode);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_TOP_VIEW_H_
