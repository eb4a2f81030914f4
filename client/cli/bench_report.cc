#include "client/cli/bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

using nlohmann::ordered_json;

using Failure = std::pair<std::pair<std::string, std::string>, uint64_t>;

struct Latency {
  const char* title;
  const char* key;  // key of the JSON
  const load::LatencyHistogram* histogram;
};

std::vector<Latency> LatenciesOf(const BenchResult& result) {
  return {{"TTFT", "time_to_first_token", &result.ttft},
          {"inter-token latency", "inter_token", &result.inter_token},
          {"end-to-end latency", "end_to_end", &result.end_to_end},
          {"queue time", "queue", &result.queue}};
}

std::vector<Failure> MostFrequentFirst(const BenchResult::Failures& failures) {
  std::vector<Failure> sorted(failures.begin(), failures.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Failure& a, const Failure& b) { return a.second > b.second; });
  return sorted;
}

double SecondsOf(const BenchResult& result) {
  return load::Seconds(result.window.begin, result.window.end);
}

double PerSecond(uint64_t count, const BenchResult& result) {
  const double seconds = SecondsOf(result);
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

uint64_t Count(int64_t count) { return static_cast<uint64_t>(count); }

std::string RequestsOf(const BenchResult& result) {
  std::string text =
      fmt::format("{} ok, {} failed", WithSeparators(result.ok), WithSeparators(result.failed));
  if (result.cut_off > 0) text += fmt::format(", {} cut off", WithSeparators(result.cut_off));
  if (result.window.not_sent > 0) {
    text += fmt::format(", {} not sent", WithSeparators(Count(result.window.not_sent)));
  }
  return text;
}

// Returns "8 in flight" or "12.5/s, at most 1,024 in flight".
std::string DescribeLoad(const load::LoadOptions& load) {
  const std::string in_flight = WithSeparators(Count(load.concurrency)) + " in flight";
  return load.rate ? fmt::format("{:g}/s, at most {}", *load.rate, in_flight) : in_flight;
}

void PrintOverview(const BenchSubject& subject, const BenchOptions& options,
                   const BenchResult& result, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  table.AddRow({"server", Printable(fmt::format("{} ({})", fmt::join(subject.targets, ", "),
                                                subject.server))});
  table.AddRow({"model", Printable(subject.model)});
  table.AddRow({"load", DescribeLoad(options.load)});
  table.AddRow({"measured", fmt::format("{:.2f} s{}", SecondsOf(result),
                                        result.window.interrupted ? ", then interrupted" : "")});
  table.AddRow({"requests", RequestsOf(result)});
  table.AddRow({"requests/s", WithSeparators(PerSecond(result.completed, result), 2)});
  table.AddRow({"prompt tokens/s",
                WithSeparators(PerSecond(Count(result.window.prompt_tokens), result), 1)});
  table.AddRow({"output tokens/s",
                WithSeparators(PerSecond(Count(result.window.output_tokens), result), 1)});
  table.Print(out);
}

void PrintLatencies(const BenchResult& result, std::ostream& out) {
  Table table(
      {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "mean", "p50", "p90", "p99", "max"});
  for (const auto& [title, key, histogram] : LatenciesOf(result)) {
    std::vector<std::string> row = {title};
    for (const double seconds :
         {histogram->mean(), histogram->Percentile(50), histogram->Percentile(90),
          histogram->Percentile(99), histogram->max()}) {
      row.push_back(histogram->count() == 0 ? "-" : HumanSeconds(seconds));
    }
    table.AddRow(std::move(row));
  }
  out << '\n';
  table.Print(out);
}

void PrintFailures(const BenchResult& result, std::ostream& out) {
  if (result.failures.empty()) return;
  Table table({Align::kRight, Align::kLeft, Align::kLeft});
  table.AddRow({"failed", "code", "reason"});
  for (const auto& [kind, count] : MostFrequentFirst(result.failures)) {
    table.AddRow({WithSeparators(count), Printable(kind.first), Printable(kind.second)});
  }
  out << '\n';
  table.Print(out);
}

ordered_json ToJson(const load::LatencyHistogram& histogram) {
  if (histogram.count() == 0) return nullptr;
  return {{"count", histogram.count()},      {"mean", histogram.mean()},
          {"p50", histogram.Percentile(50)}, {"p90", histogram.Percentile(90)},
          {"p99", histogram.Percentile(99)}, {"min", histogram.min()},
          {"max", histogram.max()}};
}

ordered_json LoadJson(const BenchOptions& options) {
  ordered_json load = {{"loop", options.load.rate ? "open" : "closed"},
                       {"concurrency", options.load.concurrency},
                       {"rate", nullptr},
                       {"warmup", options.load.warmup_seconds},
                       {"prompt_tokens", nullptr},
                       {"prompts_file", nullptr},
                       {"max_new_tokens", options.request.stopping().max_new_tokens()},
                       {"seed", options.load.seed}};
  if (options.load.rate) load["rate"] = *options.load.rate;
  if (options.prompts_file.empty()) {
    load["prompt_tokens"] = options.prompt_tokens;
  } else {
    load["prompts_file"] = options.prompts_file;
  }
  return load;
}

}  // namespace

void BenchResult::AddFailure(const std::string& code, const std::string& reason) {
  constexpr size_t kMaxReasonBytes = 64;
  ++failed;
  const std::pair<std::string, std::string> kind(code, reason.substr(0, kMaxReasonBytes));
  if (failures.size() < kMaxKinds || failures.contains(kind)) {
    ++failures[kind];
  } else {
    ++failures[{"OTHER", ""}];
  }
}

void PrintBenchTables(const BenchSubject& subject, const BenchOptions& options,
                      const BenchResult& result, std::ostream& out) {
  PrintOverview(subject, options, result, out);
  PrintLatencies(result, out);
  PrintFailures(result, out);
}

void PrintBenchJson(const BenchSubject& subject, const BenchOptions& options,
                    const BenchResult& result, std::ostream& out) {
  const load::LoadWindow& window = result.window;
  ordered_json failures = ordered_json::array();
  for (const auto& [kind, count] : MostFrequentFirst(result.failures)) {
    failures.push_back({{"code", kind.first}, {"reason", kind.second}, {"count", count}});
  }
  ordered_json latencies;
  for (const auto& [title, key, histogram] : LatenciesOf(result)) {
    latencies[key] = ToJson(*histogram);
  }
  const ordered_json json = {
      {"targets", subject.targets},
      {"model", subject.model},
      {"server", subject.server},
      {"load", LoadJson(options)},
      {"seconds", SecondsOf(result)},
      {"interrupted", window.interrupted},
      {"requests",
       {{"sent", window.sent},
        {"ok", result.ok},
        {"failed", result.failed},
        {"cut_off", result.cut_off},
        {"not_sent", window.not_sent},
        {"completed_per_second", PerSecond(result.completed, result)}}},
      {"failures", failures},
      {"tokens",
       {{"prompt", window.prompt_tokens},
        {"output", window.output_tokens},
        {"prompt_per_second", PerSecond(Count(window.prompt_tokens), result)},
        {"output_per_second", PerSecond(Count(window.output_tokens), result)}}},
      {"latency_seconds", latencies}};
  // A server's strings may contain any bytes.
  out << json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace tlm::cli
