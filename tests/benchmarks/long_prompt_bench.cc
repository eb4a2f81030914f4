// long_prompt_bench: how a long prompt delays running streams. See README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "client/cli/base/table.h"
#include "client/cli/base/terminal.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/report.h"
#include "tests/benchmarks/load/session.h"
#include "tests/benchmarks/load/stall_probe.h"

ABSL_FLAG(int64_t, streams, 8, "streams that decode, 1 to 4096");
ABSL_FLAG(int64_t, stream_prompt_tokens, 64, "tokens of their prompts");
ABSL_FLAG(int64_t, stream_output_tokens, 28672,
          "tokens they may decode; the run fails when they run out");
ABSL_FLAG(int64_t, prompt_tokens, 16384, "tokens of the prompt that arrives");
ABSL_FLAG(absl::Duration, settle, absl::Seconds(1), "from the streams' start to the measurement");
ABSL_FLAG(absl::Duration, undisturbed, absl::Seconds(5), "measured before the prompt arrives");
ABSL_FLAG(int32_t, repetitions, 5, "1 to 1000");
ABSL_FLAG(uint64_t, seed, 1, "of the prompts");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_streams) < 1 || absl::GetFlag(FLAGS_streams) > 4096) {
    return InvalidArgument("--streams is {}, not 1 to 4096", absl::GetFlag(FLAGS_streams));
  }
  if (absl::GetFlag(FLAGS_repetitions) < 1 || absl::GetFlag(FLAGS_repetitions) > 1000) {
    return InvalidArgument("--repetitions is {}, not 1 to 1000", absl::GetFlag(FLAGS_repetitions));
  }
  for (const int64_t tokens :
       {absl::GetFlag(FLAGS_stream_prompt_tokens), absl::GetFlag(FLAGS_stream_output_tokens),
        absl::GetFlag(FLAGS_prompt_tokens)}) {
    if (tokens < 1) return InvalidArgument("{} tokens: at least 1", tokens);
  }
  return absl::OkStatus();
}

StallOptions OptionsFromFlags() {
  return {.streams = absl::GetFlag(FLAGS_streams),
          .stream_prompt_tokens = absl::GetFlag(FLAGS_stream_prompt_tokens),
          .stream_output_tokens = absl::GetFlag(FLAGS_stream_output_tokens),
          .prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens),
          .settle_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_settle)),
          .undisturbed_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_undisturbed)),
          .seed = absl::GetFlag(FLAGS_seed)};
}

// Of at least one value; the lower one of two medians.
double MedianOf(const std::vector<Stall>& stalls, double (*value)(const Stall&)) {
  std::vector<double> values;
  for (const Stall& stall : stalls) values.push_back(value(stall));
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string Milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

void AddRow(const std::string& name, const std::vector<Stall>& stalls, cli::Table& table) {
  const auto median = [&](double (*value)(const Stall&)) { return MedianOf(stalls, value); };
  table.AddRow({name, Milliseconds(median([](const Stall& s) { return s.undisturbed.p50; })),
                Milliseconds(median([](const Stall& s) { return s.undisturbed.p99; })),
                Milliseconds(median([](const Stall& s) { return s.undisturbed.max; })),
                Milliseconds(median([](const Stall& s) { return s.disturbed.p50; })),
                Milliseconds(median([](const Stall& s) { return s.disturbed.p99; })),
                Milliseconds(median([](const Stall& s) { return s.disturbed.max; })),
                fmt::format("{:.2f}", median([](const Stall& s) { return s.worst_ratio(); })),
                fmt::format("{:.2f}", median([](const Stall& s) { return s.ttft_seconds; })),
                fmt::format("{:.0f}",
                            median([](const Stall& s) { return s.undisturbed_tokens_per_second; })),
                fmt::format("{:.0f}",
                            median([](const Stall& s) { return s.disturbed_tokens_per_second; }))});
}

void PrintTable(const std::vector<Stall>& stalls) {
  std::vector<cli::Align> columns(11, cli::Align::kRight);
  columns[0] = cli::Align::kLeft;
  cli::Table table(columns);
  table.AddRow({"gaps in ms", "undisturbed p50", "p99", "max", "during p50", "p99", "worst",
                "worst / undisturbed p99", "prompt's TTFT s", "tok/s before", "tok/s during"});
  for (size_t i = 0; i < stalls.size(); ++i) {
    AddRow(fmt::format("run {}", i + 1), {stalls[i]}, table);
  }
  AddRow("median", stalls, table);
  table.Print(std::cout);
}

nlohmann::ordered_json ToJson(const Stall& stall) {
  return {{"undisturbed_gap_s", ToJson(stall.undisturbed)},
          {"disturbed_gap_s", ToJson(stall.disturbed)},
          {"worst_ratio", stall.worst_ratio()},
          {"ttft_s", stall.ttft_seconds},
          {"undisturbed_tokens_per_second", stall.undisturbed_tokens_per_second},
          {"disturbed_tokens_per_second", stall.disturbed_tokens_per_second}};
}

absl::Status Report(const Session& session, const std::vector<Stall>& stalls) {
  PrintTable(stalls);
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return absl::OkStatus();
  nlohmann::ordered_json document = {{"benchmark", "long_prompt_bench"}};
  document.update(session.Describe());
  document["workload"] = {{"streams", absl::GetFlag(FLAGS_streams)},
                          {"stream_prompt_tokens", absl::GetFlag(FLAGS_stream_prompt_tokens)},
                          {"prompt_tokens", absl::GetFlag(FLAGS_prompt_tokens)},
                          {"seed", absl::GetFlag(FLAGS_seed)}};
  document["median_worst_ratio"] =
      MedianOf(stalls, [](const Stall& stall) { return stall.worst_ratio(); });
  for (const Stall& stall : stalls) document["runs"].push_back(ToJson(stall));
  return WriteJson(document, path);
}

absl::Status Run(const std::vector<char*>& arguments) {
  TLM_RETURN_IF_ERROR(CheckFlags());
  TLM_ASSIGN_OR_RETURN(Session session, Session::Open(arguments));
  std::cout << session.Headline() << std::endl;
  std::vector<Stall> stalls;
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  for (int i = 0; i < repetitions; ++i) {
    cli::ProgressLine progress(&std::cerr, isatty(STDERR_FILENO) == 1);
    progress.Show(static_cast<double>(i) / repetitions,
                  fmt::format("long prompts: run {} of {}", i + 1, repetitions));
    StallProbe probe(session.target(), OptionsFromFlags());
    TLM_ASSIGN_OR_RETURN(stalls.emplace_back(), probe.Measure(static_cast<uint64_t>(i)));
  }
  return Report(session, stalls);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "measures the inter-token gaps of running streams while a long prompt is computed.\n\n"
      "  long_prompt_bench --target=HOST:PORT --json=FILE\n"
      "  long_prompt_bench --server=PATH -- --model=DIR ...");
  const absl::Status status = tlm::bench::Run(absl::ParseCommandLine(argc, argv));
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "long_prompt_bench: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}
