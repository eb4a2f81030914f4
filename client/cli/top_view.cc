#include "client/cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>

#include "client/cli/base/messages.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cpp/status.h"

namespace tlm::cli {
namespace {

constexpr size_t kBlockLines = 8;  // the last one is empty
constexpr size_t kNarrowBlockLines = 6;
constexpr size_t kHeadLines = 2;
constexpr size_t kLabelColumns = 10;
// With fewer columns, lines have no labels.
constexpr size_t kNarrowColumns = 40;

double ShareOf(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string HitRate(const v1::PrefixCacheLoad& cache) {
  return cache.queried_tokens() == 0 ? "-"
                                     : Percent(ShareOf(cache.hit_tokens(), cache.queried_tokens()));
}

std::string StateOf(const ServerLoad& server) {
  if (!server.asked) return "connecting";
  if (!server.status.ok()) return "unreachable";
  return server.load->draining() ? "draining" : "serving";
}

Style StyleOf(const ServerLoad& server) {
  if (!server.asked) return Style::kDim;
  if (!server.status.ok()) return Style::kBad;
  return server.load->draining() ? Style::kWarning : Style::kGood;
}

std::string Problem(const ServerLoad& server) {
  return fmt::format("{}: {}", client::CodeName(server.status.code()),
                     std::string(server.status.message()));
}

std::string Label(std::string_view label) { return fmt::format("  {:<{}}", label, kLabelColumns); }

// A line of phrases, the most important first. Phrases that do not fit are omitted, not cut.
class FittedLine {
 public:
  FittedLine(std::string_view beginning, size_t columns) : line_(beginning), columns_(columns) {}

  FittedLine& Add(std::string_view phrase, Style style = Style::kPlain) {
    full_ = full_ || line_.width() + DisplayWidth(phrase) > columns_;
    if (!full_) line_.Add(phrase, style);
    return *this;
  }
  StyledLine line() const { return line_; }

 private:
  StyledLine line_;
  size_t columns_;
  bool full_ = false;
};

// Draws [####====------]: blocks of sequences, blocks that only the prefix cache holds, free
// blocks.
std::string KvBar(const v1::GetLoadResponse& load, size_t columns) {
  const auto cells = [&load, columns](uint64_t blocks) {
    const double share = ShareOf(blocks, load.kv_blocks_total());
    return static_cast<size_t>(
        std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns)));
  };
  const size_t used = cells(load.kv_blocks_used());
  const size_t cached = std::min(cells(load.kv_blocks_cached()), columns - used);
  return fmt::format("[{}{}{}]", std::string(used, '#'), std::string(cached, '='),
                     std::string(columns - used - cached, '-'));
}

StyledLine RequestsLine(const v1::GetLoadResponse& load, size_t columns) {
  FittedLine line(Label("requests"), columns);
  line.Add(WithSeparators(load.running_sequences()) + " running", Style::kBold);
  line.Add(fmt::format(", {} waiting", WithSeparators(load.queued_requests())), Style::kBold);
  if (load.queued_requests() > 0) {
    line.Add(fmt::format(" (about {}, {} tokens)", RoundedTime(load.estimated_queue_time()),
                         WithSeparators(load.queued_tokens())));
  }
  if (load.parked_sequences() > 0) {
    line.Add(fmt::format("   {} paused (backpressure)", WithSeparators(load.parked_sequences())));
  }
  return line.Add(fmt::format("   {} active calls", WithSeparators(load.active_calls()))).line();
}

StyledLine KvLine(const v1::GetLoadResponse& load, size_t columns) {
  const double used = ShareOf(load.kv_blocks_used(), load.kv_blocks_total());
  const std::string percent = fmt::format(" {:>7}", Percent(used));
  const std::string legend =
      fmt::format("   {} used (#), {} cached (=)", WithSeparators(load.kv_blocks_used()),
                  WithSeparators(load.kv_blocks_cached()));
  const std::string total = fmt::format(" of {} blocks", WithSeparators(load.kv_blocks_total()));
  // The bar takes the columns that the text leaves free.
  constexpr size_t kMinBar = 10;
  constexpr size_t kMaxBar = 50;
  const std::string label = Label("KV cache");
  const size_t taken = label.size() + 2 + percent.size() + legend.size() + total.size();
  const size_t bar = std::clamp(columns > taken ? columns - taken : 0, kMinBar, kMaxBar);
  constexpr double kNearlyFull = 0.9;
  return FittedLine(label, columns)
      .Add(KvBar(load, bar), used > kNearlyFull ? Style::kWarning : Style::kPlain)
      .Add(percent, Style::kBold)
      .Add(legend)
      .Add(total)
      .line();
}

StyledLine PrefixLine(const ServerLoad& server, size_t columns) {
  const v1::PrefixCacheLoad& cache = server.load->prefix_cache();
  FittedLine line(Label("prefix"), columns);
  if (cache.queried_tokens() == 0) return line.Add("no prompts so far").line();
  line.Add(HitRate(cache) + " hit rate", Style::kBold);
  if (const std::optional<double> recent = server.history.RecentHitShare()) {
    line.Add(fmt::format(", {} in the last minute", Percent(*recent)));
  }
  return line.Add(fmt::format("   {} prompt tokens", WithSeparators(cache.queried_tokens())))
      .line();
}

StyledLine RateLine(std::string_view label, double rate, const std::deque<double>& history,
                    const TopLayout& layout) {
  constexpr size_t kRateColumns = 17;
  const size_t before = kLabelColumns + kRateColumns + 4;
  const size_t columns = layout.size.columns > before ? layout.size.columns - before : 0;
  return StyledLine(Label(label))
      .Add(fmt::format("{:>{}} tok/s  ", WithSeparators(rate, 1), kRateColumns - 8), Style::kBold)
      .Add(Sparkline(history, columns, layout.unicode));
}

StyledLine CountsLine(const v1::GetLoadResponse& load, size_t columns) {
  FittedLine line(Label("steps"), columns);
  line.Add(WithSeparators(load.steps()));
  if (load.steps() > 0) {
    const std::string age = RoundedTime(load.last_step_age());
    line.Add(fmt::format(", the last {} ago", age == "0" ? "0ms" : age));
  }
  return line.Add(fmt::format("   {} preemptions", WithSeparators(load.preemptions())))
      .Add(fmt::format("   {} requests finished", WithSeparators(load.finished_requests())))
      .line();
}

StyledLine TitleLine(const ServerLoad& server, absl::Time now) {
  StyledLine line(server.target, Style::kBold);
  line.Add("  ").Add(StateOf(server), StyleOf(server));
  if (!server.asked) return line;
  if (server.status.ok())
    return line.Add(fmt::format("  up {}", RoundedTime(server.load->uptime())));
  if (server.load) {
    line.Add(fmt::format(
        "  for {}", absl::FormatDuration(absl::Trunc(now - server.answered_at, absl::Seconds(1)))));
  }
  return line.Add("  " + Problem(server), Style::kDim);
}

void AddBlock(const ServerLoad& server, absl::Time now, const TopLayout& layout,
              std::vector<StyledLine>* lines) {
  lines->push_back(TitleLine(server, now));
  if (server.asked && server.status.ok()) {
    const v1::GetLoadResponse& load = *server.load;
    const size_t columns = layout.size.columns;
    lines->push_back(RequestsLine(load, columns));
    lines->push_back(KvLine(load, columns));
    lines->push_back(PrefixLine(server, columns));
    lines->push_back(
        RateLine("prefill", load.prefill_tokens_per_second(), server.history.prefill(), layout));
    lines->push_back(
        RateLine("decode", load.decode_tokens_per_second(), server.history.decode(), layout));
    lines->push_back(CountsLine(load, columns));
  }
  lines->emplace_back();
}

void AddNarrowBlock(const ServerLoad& server, std::vector<StyledLine>* lines) {
  lines->emplace_back(server.target, Style::kBold);
  if (server.asked && server.status.ok()) {
    const v1::GetLoadResponse& load = *server.load;
    lines->emplace_back(fmt::format(" run {}, wait {}", WithSeparators(load.running_sequences()),
                                    WithSeparators(load.queued_requests())));
    lines->emplace_back(
        fmt::format(" KV {}", Percent(ShareOf(load.kv_blocks_used(), load.kv_blocks_total()))));
    lines->emplace_back(
        fmt::format(" in  {} tok/s", WithSeparators(load.prefill_tokens_per_second(), 0)));
    lines->emplace_back(
        fmt::format(" out {} tok/s", WithSeparators(load.decode_tokens_per_second(), 0)));
  } else {
    lines->emplace_back(" " + StateOf(server), StyleOf(server));
  }
  lines->emplace_back();
}

// Adds as many blocks as fit.
void AddNarrowBlocks(const std::vector<ServerLoad>& servers, size_t rows,
                     std::vector<StyledLine>* lines) {
  for (size_t i = 0; i < servers.size(); ++i) {
    const size_t after = i + 1 < servers.size() ? 2 : 0;  // an empty line and "... and N more"
    if (i > 0 && lines->size() + kNarrowBlockLines - 1 + after > rows) {
      lines->emplace_back(fmt::format("... and {} more", servers.size() - i), Style::kDim);
      return;
    }
    AddNarrowBlock(servers[i], lines);
  }
  lines->pop_back();
}

// Returns the cells of a server, the most important first.
std::vector<std::string> RowOf(const ServerLoad& server) {
  std::vector<std::string> row = {Printable(server.target), StateOf(server)};
  if (!server.asked || !server.status.ok()) return row;
  const v1::GetLoadResponse& load = *server.load;
  for (std::string cell :
       {WithSeparators(load.running_sequences()), WithSeparators(load.queued_requests()),
        Percent(ShareOf(load.kv_blocks_used(), load.kv_blocks_total())),
        WithSeparators(load.decode_tokens_per_second(), 1),
        WithSeparators(load.prefill_tokens_per_second(), 1),
        RoundedTime(load.estimated_queue_time()), HitRate(load.prefix_cache()),
        WithSeparators(load.active_calls()), WithSeparators(load.steps()),
        WithSeparators(load.preemptions()), RoundedTime(load.uptime())}) {
    row.push_back(std::move(cell));
  }
  return row;
}

// Returns headings and a line per server, with as many columns as fit.
std::vector<std::string> TableLines(const std::vector<ServerLoad>& servers, size_t width) {
  std::vector<std::vector<std::string>> rows = {{"server", "state", "run", "wait", "KV",
                                                 "decode tok/s", "prefill tok/s", "queue time",
                                                 "hit rate", "active", "steps", "preempted", "up"}};
  for (const ServerLoad& server : servers) rows.push_back(RowOf(server));
  std::vector<std::string> lines;
  for (size_t columns = rows[0].size(); columns > 0; --columns) {
    std::vector<Align> alignment(columns, Align::kRight);
    alignment[0] = Align::kLeft;
    if (columns > 1) alignment[1] = Align::kLeft;
    Table table(alignment);
    for (std::vector<std::string>& row : rows) {
      row.resize(std::min(row.size(), columns));
      table.AddRow(row);
    }
    std::ostringstream text;
    table.Print(text);
    std::istringstream printed(text.str());
    lines.clear();
    size_t widest = 0;
    for (std::string line; std::getline(printed, line);) {
      widest = std::max(widest, DisplayWidth(line));
      lines.push_back(line);
    }
    if (widest <= width) break;
  }
  return lines;
}

void AddRows(const std::vector<ServerLoad>& servers, const TerminalSize& size,
             std::vector<StyledLine>* lines) {
  const std::vector<std::string> table = TableLines(servers, size.columns);
  lines->emplace_back(table[0], Style::kDim);
  for (size_t i = 0; i < servers.size(); ++i) {
    if (lines->size() + 1 >= size.rows && i + 1 < servers.size()) {
      lines->emplace_back(fmt::format("... and {} more", servers.size() - i), Style::kDim);
      return;
    }
    const bool ok = servers[i].asked && servers[i].status.ok();
    lines->emplace_back(table[i + 1], ok ? Style::kPlain : StyleOf(servers[i]));
  }
}

StyledLine HeadLine(const std::vector<ServerLoad>& servers, const TopLayout& layout) {
  const auto reachable =
      std::count_if(servers.begin(), servers.end(),
                    [](const ServerLoad& server) { return server.asked && server.status.ok(); });
  return FittedLine("", layout.size.columns)
      .Add("tlm top", Style::kBold)
      .Add(absl::FormatTime("  %H:%M:%S", layout.wall_time, absl::LocalTimeZone()))
      .Add(fmt::format("  {} of {} servers", reachable, servers.size()))
      .Add("  (q quits)")
      .line();
}

}  // namespace

std::vector<StyledLine> TopLines(const std::vector<ServerLoad>& servers, absl::Time now,
                                 const TopLayout& layout) {
  const TerminalSize& size = layout.size;
  std::vector<StyledLine> lines = {HeadLine(servers, layout), StyledLine()};
  if (size.columns < kNarrowColumns) {
    AddNarrowBlocks(servers, size.rows, &lines);
  } else if (kHeadLines + servers.size() * kBlockLines <= size.rows + 1) {
    for (const ServerLoad& server : servers) AddBlock(server, now, layout, &lines);
    lines.pop_back();
  } else {
    AddRows(servers, size, &lines);
  }
  if (lines.size() > size.rows) lines.resize(size.rows);
  return lines;
}

void PrintTopTable(const std::vector<ServerLoad>& servers, std::ostream& out) {
  for (const std::string& line : TableLines(servers, SIZE_MAX)) out << line << '\n';
}

std::string Sparkline(const std::deque<double>& values, size_t columns, bool unicode) {
  constexpr std::string_view kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view kAscii[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  constexpr double kHeights = std::size(kBlocks) - 1;
  const size_t count = std::min(columns, values.size());
  const auto first = values.end() - static_cast<ptrdiff_t>(count);
  const double highest = count == 0 ? 0 : *std::max_element(first, values.end());
  std::string line(columns - count, ' ');
  for (auto value = first; value != values.end(); ++value) {
    // Every value above 0 is visible; written so that NaN is not.
    const double height = highest > 0 && *value > 0 ? std::ceil(*value / highest * kHeights) : 0;
    const auto level = static_cast<size_t>(std::min(height, kHeights));
    line += unicode ? kBlocks[level] : kAscii[level];
  }
  return line;
}

}  // namespace tlm::cli
