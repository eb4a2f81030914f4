// stream_bench: the cost of streaming without a model: engine, token streams, handlers, gRPC.
// Starts itself again as the server and measures that process. See README.md.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "client/cli/base/table.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/load_run.h"
#include "tests/benchmarks/load/machine.h"
#include "tests/benchmarks/load/metrics.h"
#include "tests/benchmarks/load/report.h"
#include "tests/benchmarks/load/target.h"
#include "tests/benchmarks/noop_server.h"

ABSL_FLAG(std::vector<std::string>, streams, std::vector<std::string>({"1", "64", "512"}),
          "streams at a time, each up to 512");
ABSL_FLAG(std::vector<std::string>, pace, std::vector<std::string>({"0", "10000"}),
          "tokens a second that the model gives, all streams together; 0 = as fast as it can");
ABSL_FLAG(absl::Duration, warmup, absl::Seconds(1), "load before anything is measured");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(5), "how long each number is measured");
ABSL_FLAG(std::string, json, "", "write everything to this file");

ABSL_FLAG(bool, serve, false, "be the server (the benchmark starts it by itself)");
ABSL_FLAG(int32_t, port, 0, "of the server; 0 = any free one");
ABSL_FLAG(std::string, port_file, "", "of the server");
ABSL_FLAG(double, rows_per_second, 0, "of the server's model; 0 = as fast as it can");

namespace tlm::bench {
namespace {

constexpr int64_t kPromptTokens = kNoopPromptTokens;
constexpr int64_t kOutputTokens = kNoopContext - kPromptTokens;
constexpr absl::Duration kTimeout = absl::Seconds(20);

struct Measurement {
  int64_t streams = 0;
  double pace = 0;
  PointMetrics metrics;
  double engine_cpus = 0;  // of server_cpus, the engine thread
};

double MicrosecondsEach(double cpus, double per_second) {
  return per_second > 0 ? 1e6 * cpus / per_second : 0;
}

// Starts a server for each measurement.
absl::StatusOr<Measurement> MeasureStreams(int64_t streams, double pace, uint64_t run) {
  TLM_ASSIGN_OR_RETURN(
      const std::unique_ptr<ServerUnderTest> server,
      ServerUnderTest::Start(
          {"/proc/self/exe", "--serve", fmt::format("--rows_per_second={}", pace)}, kTimeout));
  TLM_ASSIGN_OR_RETURN(Target target, ConnectTo(server->target(), 1, kTimeout));
  TLM_ASSIGN_OR_RETURN(
      const Workload workload,
      Workload::Create({.prompt_tokens = Counts(fmt::format("{}", kPromptTokens)).mixture,
                        .output_tokens = Counts(fmt::format("{}", kOutputTokens)).mixture,
                        .deadline = Durations("inf").mixture,
                        .priority = Counts("0").mixture,
                        .temperature = 0,
                        .seed = 1},
                       target.model));
  // Called when the window opens and when it closes.
  std::vector<double> engine_seconds;
  const auto server_cpu = [&] {
    engine_seconds.push_back(server->process().ThreadCpuSeconds(kEngineThreadName));
    return server->process().CpuSeconds();
  };
  const RunLimits limits = {.warmup_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_warmup)),
                            .seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_duration)),
                            .drain_seconds = 0};
  const RunRecord record =
      RunLoad(target.connections, workload, limits,
              {.loop = Loop::kClosed, .load = static_cast<double>(streams)}, run, server_cpu);
  Measurement measurement = {.streams = streams, .pace = pace, .metrics = Measure(record, {})};
  measurement.engine_cpus =
      (engine_seconds.back() - engine_seconds.front()) / measurement.metrics.window_seconds;
  if (record.window.output_tokens == 0) return Internal("the server sent no tokens");
  return measurement;
}

void PrintTable(const std::vector<Measurement>& measurements) {
  cli::Table table(std::vector<cli::Align>(11, cli::Align::kRight));
  table.AddRow({"streams", "pace tok/s", "messages/s", "tokens/s", "tokens/message", "server CPUs",
                "us/token", "engine us/token", "rest us/token", "rest us/message", "client CPUs"});
  for (const Measurement& m : measurements) {
    const double messages = m.metrics.events_per_second;
    const double tokens = m.metrics.output_tokens_per_second;
    const double rest = m.metrics.server_cpus - m.engine_cpus;
    table.AddRow({fmt::format("{}", m.streams), m.pace > 0 ? fmt::format("{:.0f}", m.pace) : "-",
                  fmt::format("{:.0f}", messages), fmt::format("{:.0f}", tokens),
                  fmt::format("{:.2f}", messages > 0 ? tokens / messages : 0),
                  fmt::format("{:.2f}", m.metrics.server_cpus),
                  fmt::format("{:.2f}", MicrosecondsEach(m.metrics.server_cpus, tokens)),
                  fmt::format("{:.2f}", MicrosecondsEach(m.engine_cpus, tokens)),
                  fmt::format("{:.2f}", MicrosecondsEach(rest, tokens)),
                  fmt::format("{:.2f}", MicrosecondsEach(rest, messages)),
                  fmt::format("{:.2f}", m.metrics.client_cpus)});
  }
  table.Print(std::cout);
}

nlohmann::ordered_json ToJson(const Measurement& m) {
  const double tokens = m.metrics.output_tokens_per_second;
  return {{"streams", m.streams},
          {"pace_tokens_per_second", m.pace},
          {"messages_per_second", m.metrics.events_per_second},
          {"tokens_per_second", tokens},
          {"server_cpu_us_per_token", MicrosecondsEach(m.metrics.server_cpus, tokens)},
          {"engine_cpu_us_per_token", MicrosecondsEach(m.engine_cpus, tokens)},
          {"cpus",
           {{"server", m.metrics.server_cpus},
            {"engine", m.engine_cpus},
            {"client", m.metrics.client_cpus}}},
          {"inter_token_s", ToJson(m.metrics.inter_token)}};
}

absl::StatusOr<double> NumberUpTo(const std::string& text, double max) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number <= max)) {
    return InvalidArgument("\"{}\" is not a number from 0 to {}", text, max);
  }
  return number;
}

absl::Status Run() {
  std::vector<Measurement> measurements;
  const nlohmann::ordered_json machine = DescribeMachine();
  for (const std::string& pace_text : absl::GetFlag(FLAGS_pace)) {
    TLM_ASSIGN_OR_RETURN(const double pace, NumberUpTo(pace_text, 1e9));
    for (const std::string& streams_text : absl::GetFlag(FLAGS_streams)) {
      TLM_ASSIGN_OR_RETURN(const double streams, NumberUpTo(streams_text, kNoopStreams));
      if (streams < 1) return InvalidArgument("--streams: {} is below 1", streams_text);
      TLM_ASSIGN_OR_RETURN(
          measurements.emplace_back(),
          MeasureStreams(static_cast<int64_t>(streams), pace, measurements.size()));
    }
  }
  std::cout << fmt::format(
      "{}, {} processors, load average before {:.2f}; client and server share them\n",
      machine["cpu"].get<std::string>(), machine["cpus"].get<int>(),
      machine["load_average_before"].get<double>());
  PrintTable(measurements);
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return absl::OkStatus();
  nlohmann::ordered_json document = {{"benchmark", "stream_bench"}, {"machine", machine}};
  for (const Measurement& m : measurements) document["points"].push_back(ToJson(m));
  return WriteJson(document, path);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "measures streaming over gRPC around a model that costs nothing.\n\n"
      "  stream_bench --streams=1,64,512 --pace=0,10000 --json=FILE");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status =
      absl::GetFlag(FLAGS_serve)
          ? tlm::bench::ServeNoopModel(absl::GetFlag(FLAGS_port), absl::GetFlag(FLAGS_port_file),
                                       absl::GetFlag(FLAGS_rows_per_second))
          : tlm::bench::Run();
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "stream_bench: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}
