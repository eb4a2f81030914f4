#include "client/cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

#include "client/cli/admin_output.h"
#include "client/cli/table.h"
#include "client/cli/text.h"
#include "client/cpp/status.h"

namespace tlm::cli {
namespace {

constexpr size_t kBlockLines = 8;  // the last of them empty
constexpr size_t kHeadLines = 2;
constexpr size_t kLabelColumns = 10;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string HitShare(const v1::GetLoadResponse& load) {
  const v1::PrefixCacheLoad& cache = load.prefix_cache();
  return cache.queried_tokens() == 0 ? "-"
                                     : Percent(Share(cache.hit_tokens(), cache.queried_tokens()));
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

// [####====------]: what sequences hold, what only the prefix cache holds, what is free.
std::string KvBar(const v1::GetLoadResponse& load, size_t columns) {
  const auto cells = [&load, columns](uint64_t blocks) {
    const double share = Share(blocks, load.kv_blocks_total());
    return static_cast<size_t>(
        std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns)));
  };
  const size_t used = cells(load.kv_blocks_used());
  const size_t cached = std::min(cells(load.kv_blocks_cached()), columns - used);
  return fmt::format("[{}{}{}]", std::string(used, '#'), std::string(cached, '='),
                     std::string(columns - used - cached, '-'));
}

StyledLine RequestsLine(const v1::GetLoadResponse& load) {
  return StyledLine(Label("requests"))
      .Add(fmt::format("{} running", WithSeparators(load.running_sequences())), Style::kBold)
      .Add(fmt::format(", {} parked   ", WithSeparators(load.parked_sequences())))
      .Add(fmt::format("{} waiting", WithSeparators(load.queued_requests())), Style::kBold)
      .Add(fmt::format(
          " ({} tokens, about {} to wait)   {} active calls", WithSeparators(load.queued_tokens()),
          RoundedTime(load.estimated_queue_time()), WithSeparators(load.active_calls())));
}

StyledLine KvLine(const v1::GetLoadResponse& load, size_t columns) {
  const size_t bar = std::clamp<size_t>(columns / 3, 10, 50);
  const double used = Share(load.kv_blocks_used(), load.kv_blocks_total());
  constexpr double kNearlyFull = 0.9;
  return StyledLine(Label("KV cache"))
      .Add(KvBar(load, bar), used > kNearlyFull ? Style::kWarning : Style::kPlain)
      .Add(fmt::format(" {:>7}", Percent(used)), Style::kBold)
      .Add(fmt::format("   {} used, {} cached of {} blocks", WithSeparators(load.kv_blocks_used()),
                       WithSeparators(load.kv_blocks_cached()),
                       WithSeparators(load.kv_blocks_total())));
}

StyledLine PrefixLine(const ServerLoad& server) {
  const v1::PrefixCacheLoad& cache = server.load->prefix_cache();
  const std::optional<double> recent = server.history.RecentHitShare();
  return StyledLine(Label("prefix"))
      .Add(fmt::format("{} found", HitShare(*server.load)), Style::kBold)
      .Add(fmt::format(" of {} tokens", WithSeparators(cache.queried_tokens())))
      .Add(recent ? fmt::format(", {} in the last minute", Percent(*recent)) : "");
}

StyledLine RateLine(std::string_view label, double rate, const std::deque<double>& history,
                    const TopLayout& layout) {
  constexpr size_t kRateColumns = 17;
  const size_t before = kLabelColumns + kRateColumns + 4;
  const size_t columns = layout.size.columns > before ? layout.size.columns - before : 0;
  return StyledLine(Label(label))
      .Add(fmt::format("{:>{}.1f} tok/s  ", rate, kRateColumns - 8), Style::kBold)
      .Add(Sparkline(history, columns, layout.unicode));
}

StyledLine CountsLine(const v1::GetLoadResponse& load) {
  return StyledLine(Label("steps"))
      .Add(fmt::format("{}, the last {} ago   {} preemptions   {} requests finished",
                       WithSeparators(load.steps()), RoundedTime(load.last_step_age()),
                       WithSeparators(load.preemptions()),
                       WithSeparators(load.finished_requests())));
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
    lines->push_back(RequestsLine(load));
    lines->push_back(KvLine(load, layout.size.columns));
    lines->push_back(PrefixLine(server));
    lines->push_back(
        RateLine("prefill", load.prefill_tokens_per_second(), server.history.prefill(), layout));
    lines->push_back(
        RateLine("decode", load.decode_tokens_per_second(), server.history.decode(), layout));
    lines->push_back(CountsLine(load));
  }
  lines->emplace_back();
}

std::vector<std::string> RowOf(const ServerLoad& server) {
  std::vector<std::string> row = {Printable(server.target), StateOf(server)};
  if (!server.asked || !server.status.ok()) return row;
  const v1::GetLoadResponse& load = *server.load;
  for (std::string cell :
       {WithSeparators(load.running_sequences()), WithSeparators(load.queued_requests()),
        Percent(Share(load.kv_blocks_used(), load.kv_blocks_total())), HitShare(load),
        fmt::format("{:.1f}", load.prefill_tokens_per_second()),
        fmt::format("{:.1f}", load.decode_tokens_per_second()),
        RoundedTime(load.estimated_queue_time()), WithSeparators(load.active_calls()),
        WithSeparators(load.steps()), WithSeparators(load.preemptions()),
        RoundedTime(load.uptime())}) {
    row.push_back(std::move(cell));
  }
  return row;
}

// Headings, then a line a server.
std::vector<std::string> TableLines(const std::vector<ServerLoad>& servers) {
  std::vector<Align> columns(13, Align::kRight);
  columns[0] = columns[1] = Align::kLeft;
  Table table(columns);
  table.AddRow({"server", "state", "running", "waiting", "KV", "prefix", "prefill tok/s",
                "decode tok/s", "queue", "active", "steps", "preempted", "up"});
  for (const ServerLoad& server : servers) table.AddRow(RowOf(server));
  std::ostringstream text;
  table.Print(text);
  std::istringstream rows(text.str());
  std::vector<std::string> lines;
  for (std::string line; std::getline(rows, line);) lines.push_back(line);
  return lines;
}

void AddRows(const std::vector<ServerLoad>& servers, size_t rows, std::vector<StyledLine>* lines) {
  const std::vector<std::string> table = TableLines(servers);
  lines->emplace_back(table[0], Style::kDim);
  for (size_t i = 0; i < servers.size(); ++i) {
    if (lines->size() + 1 >= rows && i + 1 < servers.size()) {
      lines->emplace_back(fmt::format("... and {} more", servers.size() - i), Style::kDim);
      return;
    }
    const bool ok = servers[i].asked && servers[i].status.ok();
    lines->emplace_back(table[i + 1], ok ? Style::kPlain : StyleOf(servers[i]));
  }
}

}  // namespace

std::vector<StyledLine> TopLines(const std::vector<ServerLoad>& servers, absl::Time now,
                                 const TopLayout& layout) {
  std::vector<StyledLine> lines;
  const auto reachable =
      std::count_if(servers.begin(), servers.end(),
                    [](const ServerLoad& server) { return server.asked && server.status.ok(); });
  lines.push_back(StyledLine("tlm top", Style::kBold)
                      .Add(fmt::format("  {}  {} of {} servers  (q quits)",
                                       absl::FormatTime("%H:%M:%S", now, absl::LocalTimeZone()),
                                       reachable, servers.size())));
  lines.emplace_back();
  if (kHeadLines + servers.size() * kBlockLines <= layout.size.rows + 1) {
    for (const ServerLoad& server : servers) AddBlock(server, now, layout, &lines);
    lines.pop_back();
  } else {
    AddRows(servers, layout.size.rows, &lines);
  }
  if (lines.size() > layout.size.rows) lines.resize(layout.size.rows);
  return lines;
}

void PrintTopTable(const std::vector<ServerLoad>& servers, std::ostream& out) {
  for (const std::string& line : TableLines(servers)) out << line << '\n';
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
    // Whatever is not 0 shows; written so that NaN does not.
    const double height = highest > 0 && *value > 0 ? std::ceil(*value / highest * kHeights) : 0;
    const auto level = static_cast<size_t>(std::min(height, kHeights));
    line += unicode ? kBlocks[level] : kAscii[level];
  }
  return line;
}

}  // namespace tlm::cli
