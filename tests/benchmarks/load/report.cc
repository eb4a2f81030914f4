#include "tests/benchmarks/load/report.h"

#include <fmt/format.h>

#include <fstream>

#include "client/cli/base/table.h"
#include "model/base/errors.h"

namespace tlm::bench {
namespace {

using cli::Align;
using cli::Table;

Table MakeTable(size_t left, size_t right) {
  std::vector<Align> columns(left, Align::kLeft);
  columns.insert(columns.end(), right, Align::kRight);
  return Table(std::move(columns));
}

std::string Rate(double rate) { return fmt::format("{:.{}f}", rate, rate < 100 ? 2 : 0); }
std::string Milliseconds(double seconds) {
  return fmt::format("{:.{}f}", 1e3 * seconds, seconds < 0.1 ? 2 : 0);
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kFailed:
      return "failed";
  }
  return "";
}

void PrintThroughput(const std::vector<PointMetrics>& points, std::ostream& out) {
  Table table = MakeTable(1, 12);
  table.AddRow({"load", "offered", "completed", "refused", "failed", "offered/s", "completed/s",
                "good/s", "output tok/s", "total tok/s", "cached", "server CPUs", "client CPUs"});
  for (const PointMetrics& m : points) {
    table.AddRow({NameOf(m.point), cli::WithSeparators(static_cast<uint64_t>(m.offered)),
                  cli::WithSeparators(static_cast<uint64_t>(m.completed)),
                  cli::WithSeparators(static_cast<uint64_t>(m.refused)),
                  cli::WithSeparators(static_cast<uint64_t>(m.failed)), Rate(m.offered_per_second),
                  Rate(m.completed_per_second), Rate(m.good_per_second),
                  Rate(m.output_tokens_per_second), Rate(m.total_tokens_per_second),
                  cli::Percent(m.cached_prompt_share),
                  m.server_cpus > 0 ? fmt::format("{:.2f}", m.server_cpus) : "-",
                  fmt::format("{:.2f}", m.client_cpus)});
  }
  table.Print(out);
}

void AddSummary(const std::string& first, const std::string& second, const Summary& summary,
                Table& table) {
  if (summary.count == 0) return;
  table.AddRow({first, second, cli::WithSeparators(summary.count), Milliseconds(summary.mean),
                Milliseconds(summary.p50), Milliseconds(summary.p90), Milliseconds(summary.p99),
                Milliseconds(summary.max)});
}

void PrintLatencies(const std::vector<PointMetrics>& points, std::ostream& out) {
  Table table = MakeTable(2, 6);
  table.AddRow({"load", "milliseconds", "samples", "mean", "p50", "p90", "p99", "max"});
  for (const PointMetrics& m : points) {
    AddSummary(NameOf(m.point), "time to first token", m.ttft, table);
    AddSummary("", "between events", m.inter_token, table);
    AddSummary("", "per token, a request's mean", m.per_token, table);
    AddSummary("", "end to end", m.end_to_end, table);
    AddSummary("", "until refused", m.refusal, table);
    AddSummary("", "client sends late by", m.lag, table);
  }
  table.Print(out);
}

void PrintEndings(const std::vector<PointMetrics>& points, std::ostream& out) {
  Table table = MakeTable(4, 6);
  table.AddRow({"load", "not completed", "code", "reason", "count", "told when to retry",
                "retry p50 ms", "answer p50 ms", "p99", "max"});
  bool any = false;
  for (const PointMetrics& m : points) {
    for (const Ending& ending : m.endings) {
      any = true;
      table.AddRow({NameOf(m.point), NameOf(ending.outcome), ending.code,
                    ending.reason.empty() ? "-" : ending.reason,
                    cli::WithSeparators(static_cast<uint64_t>(ending.count)),
                    cli::WithSeparators(static_cast<uint64_t>(ending.with_retry_time)),
                    Milliseconds(ending.retry_seconds.p50), Milliseconds(ending.seconds.p50),
                    Milliseconds(ending.seconds.p99), Milliseconds(ending.seconds.max)});
    }
  }
  if (any) table.Print(out << '\n');
}

}  // namespace

void PrintTables(const std::vector<PointMetrics>& points, std::ostream& out) {
  PrintThroughput(points, out);
  out << '\n';
  PrintLatencies(points, out);
  PrintEndings(points, out);
}

nlohmann::ordered_json ToJson(const Summary& summary) {
  if (summary.count == 0) return nullptr;
  return {{"count", summary.count}, {"mean", summary.mean}, {"p50", summary.p50},
          {"p90", summary.p90},     {"p99", summary.p99},   {"max", summary.max}};
}

nlohmann::ordered_json ToJson(const PointMetrics& m) {
  nlohmann::ordered_json endings = nlohmann::ordered_json::array();
  for (const Ending& ending : m.endings) {
    endings.push_back({{"outcome", NameOf(ending.outcome)},
                       {"code", ending.code},
                       {"reason", ending.reason},
                       {"count", ending.count},
                       {"with_retry_time", ending.with_retry_time},
                       {"retry_s", ToJson(ending.retry_seconds)},
                       {"answer_s", ToJson(ending.seconds)}});
  }
  return {
      {"loop", m.point.loop == Loop::kClosed ? "closed" : "open"},
      {"load", m.point.load},
      {"window_s", m.window_seconds},
      {"requests",
       {{"offered", m.offered},
        {"completed", m.completed},
        {"refused", m.refused},
        {"failed", m.failed},
        {"good", m.good}}},
      {"per_second",
       {{"offered", m.offered_per_second},
        {"completed", m.completed_per_second},
        {"good", m.good_per_second},
        {"events", m.events_per_second},
        {"output_tokens", m.output_tokens_per_second},
        {"total_tokens", m.total_tokens_per_second}}},
      {"latency_s",
       {{"ttft", ToJson(m.ttft)},
        {"inter_token", ToJson(m.inter_token)},
        {"per_token", ToJson(m.per_token)},
        {"end_to_end", ToJson(m.end_to_end)},
        {"refusal", ToJson(m.refusal)},
        {"client_lag", ToJson(m.lag)}}},
      {"cached_prompt_share", m.cached_prompt_share},
      {"cpus", {{"server", m.server_cpus}, {"client", m.client_cpus}}},
      {"not_completed", std::move(endings)},
  };
}

absl::Status WriteJson(const nlohmann::ordered_json& document, const std::string& path) {
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  file.close();
  return file ? absl::OkStatus() : Internal("{} cannot be written", path);
}

}  // namespace tlm::bench
