// serve_bench: offers load to a server over gRPC and reports its metrics. See README.md.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/load/load_run.h"
#include "tests/benchmarks/load/metrics.h"
#include "tests/benchmarks/load/mixture.h"
#include "tests/benchmarks/load/plot.h"
#include "tests/benchmarks/load/report.h"
#include "tests/benchmarks/load/session.h"
#include "tests/benchmarks/load/workload.h"

using tlm::bench::CountMix;
using tlm::bench::Counts;
using tlm::bench::DurationMix;
using tlm::bench::Durations;

ABSL_FLAG(std::vector<std::string>, concurrency, {},
          "closed loops, one after the other, with so many callers: 1,2,4,8");
ABSL_FLAG(std::vector<std::string>, rate, {},
          "open loops: so many requests a second, a Poisson process that waits for nothing: 5,10");
ABSL_FLAG(std::vector<std::string>, rate_factors, {},
          "open loops of so many times the best goodput of the closed ones: 0.5,1,2,10");

ABSL_FLAG(CountMix, prompt_tokens, Counts("32..256"),
          "tokens of a prompt: 128, 32..256 (uniform) or 32..256*0.9,1024*0.1 (by weight)");
ABSL_FLAG(CountMix, output_tokens, Counts("16..64"),
          "tokens of an output, as --prompt_tokens; exact, end-of-sequence tokens are ignored");
ABSL_FLAG(double, shared_prefix, 0,
          "share of every prompt that is the same for all requests of a group, 0 to 1");
ABSL_FLAG(int64_t, prefix_groups, 1, "groups of requests that share a prefix, 1 to 4096");
ABSL_FLAG(DurationMix, deadline, Durations("inf"),
          "deadline of a call, as --prompt_tokens: 30s, 1s..10s, 2s*0.5,inf*0.5");
ABSL_FLAG(CountMix, priority, Counts("0"), "priority, as --prompt_tokens: 0*0.9,10*0.1");
ABSL_FLAG(double, temperature, 1, "of sampling; 0 = greedy");
ABSL_FLAG(bool, text, false, "ask for text besides token ids");
ABSL_FLAG(
    std::string, json_schema, "",
    "constrain outputs by the JSON Schema in this file, written in compact JSON; its documents "
    "must be longer than --output_tokens");
ABSL_FLAG(uint64_t, seed, 1, "of arrivals, lengths and prompts");

ABSL_FLAG(absl::Duration, warmup, absl::Seconds(2), "load before anything is measured");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "how long each load is measured");
ABSL_FLAG(int64_t, requests, 0, "measure until so many requests are over instead; 0 = by time");
ABSL_FLAG(absl::Duration, drain, absl::Minutes(2),
          "requests that are not over so long after the last was sent are cancelled and failed");
ABSL_FLAG(int64_t, max_in_flight, 16384,
          "requests of an open loop over this many at a time are not sent and failed");

ABSL_FLAG(absl::Duration, slo_ttft, absl::InfiniteDuration(),
          "good requests have their first token by then");
ABSL_FLAG(absl::Duration, slo_itl, absl::InfiniteDuration(),
          "good requests have this mean time between tokens at most");

ABSL_FLAG(std::string, json, "", "write everything to this file");
ABSL_FLAG(std::string, plot, "", "plot latency and goodput against load into this .svg or .png");
ABSL_FLAG(std::string, plot_note, "", "what the plot's title says behind model, machine and date");

namespace tlm::bench {
namespace {

constexpr double kMaxConcurrency = 4096;
constexpr double kMaxRate = 1e6;

// Numbers in (0, max].
absl::StatusOr<std::vector<double>> ParseLoads(const char* flag,
                                               const std::vector<std::string>& texts, double max) {
  std::vector<double> loads;
  for (const std::string& text : texts) {
    double load = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), load);
    if (error != std::errc() || end != text.data() + text.size() || !(load > 0 && load <= max)) {
      return InvalidArgument("--{}: \"{}\" is not a number above 0, at most {}", flag, text, max);
    }
    loads.push_back(load);
  }
  return loads;
}

// The loads to offer.
struct Plan {
  std::vector<double> concurrency;
  std::vector<double> rates;
  std::vector<double> rate_factors;
};

absl::StatusOr<Plan> PlanFromFlags() {
  Plan plan;
  TLM_ASSIGN_OR_RETURN(plan.concurrency, ParseLoads("concurrency", absl::GetFlag(FLAGS_concurrency),
                                                    kMaxConcurrency));
  TLM_ASSIGN_OR_RETURN(plan.rates, ParseLoads("rate", absl::GetFlag(FLAGS_rate), kMaxRate));
  TLM_ASSIGN_OR_RETURN(plan.rate_factors,
                       ParseLoads("rate_factors", absl::GetFlag(FLAGS_rate_factors), kMaxRate));
  for (const double callers : plan.concurrency) {
    if (callers != std::floor(callers)) {
      return InvalidArgument("--concurrency: {} is not a whole number", callers);
    }
  }
  if (plan.concurrency.empty() && plan.rates.empty()) plan.concurrency = {1, 2, 4, 8, 16, 32};
  if (plan.concurrency.empty() && !plan.rate_factors.empty()) {
    return InvalidArgument("--rate_factors needs --concurrency to be multiples of something");
  }
  return plan;
}

absl::StatusOr<std::string> SchemaFromFlags() {
  const std::string path = absl::GetFlag(FLAGS_json_schema);
  if (path.empty()) return std::string();
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) return InvalidArgument("--json_schema: {} cannot be read", path);
  return text;
}

absl::StatusOr<WorkloadOptions> WorkloadFromFlags() {
  TLM_ASSIGN_OR_RETURN(std::string schema, SchemaFromFlags());
  return WorkloadOptions{.prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens).mixture,
                         .output_tokens = absl::GetFlag(FLAGS_output_tokens).mixture,
                         .shared_prefix = absl::GetFlag(FLAGS_shared_prefix),
                         .prefix_groups = absl::GetFlag(FLAGS_prefix_groups),
                         .deadline = absl::GetFlag(FLAGS_deadline).mixture,
                         .priority = absl::GetFlag(FLAGS_priority).mixture,
                         .temperature = static_cast<float>(absl::GetFlag(FLAGS_temperature)),
                         .text = absl::GetFlag(FLAGS_text),
                         .json_schema = std::move(schema),
                         .seed = absl::GetFlag(FLAGS_seed)};
}

absl::StatusOr<RunLimits> LimitsFromFlags() {
  RunLimits limits;
  limits.warmup_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_warmup));
  limits.seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_duration));
  limits.requests = absl::GetFlag(FLAGS_requests);
  limits.drain_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_drain));
  limits.max_in_flight = absl::GetFlag(FLAGS_max_in_flight);
  if (!(limits.warmup_seconds >= 0) || !(limits.seconds > 0) || limits.requests < 0 ||
      !(limits.drain_seconds >= 0) || limits.max_in_flight < 1) {
    return InvalidArgument(
        "--warmup, --requests and --drain are not below 0, --duration and --max_in_flight above");
  }
  return limits;
}

ServiceLevel ServiceLevelFromFlags() {
  return {.ttft_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_slo_ttft)),
          .itl_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_slo_itl))};
}

nlohmann::ordered_json DescribeWorkload() {
  return {{"prompt_tokens", absl::GetFlag(FLAGS_prompt_tokens).mixture.text()},
          {"output_tokens", absl::GetFlag(FLAGS_output_tokens).mixture.text()},
          {"shared_prefix", absl::GetFlag(FLAGS_shared_prefix)},
          {"prefix_groups", absl::GetFlag(FLAGS_prefix_groups)},
          {"deadline", absl::GetFlag(FLAGS_deadline).mixture.text()},
          {"priority", absl::GetFlag(FLAGS_priority).mixture.text()},
          {"temperature", absl::GetFlag(FLAGS_temperature)},
          {"text", absl::GetFlag(FLAGS_text)},
          {"json_schema", absl::GetFlag(FLAGS_json_schema)},
          {"seed", absl::GetFlag(FLAGS_seed)},
          {"warmup", absl::FormatDuration(absl::GetFlag(FLAGS_warmup))},
          {"slo_ttft", absl::FormatDuration(absl::GetFlag(FLAGS_slo_ttft))},
          {"slo_itl", absl::FormatDuration(absl::GetFlag(FLAGS_slo_itl))},
          {"connections", absl::GetFlag(FLAGS_connections)}};
}

double BestGoodput(const std::vector<PointMetrics>& points) {
  double best = 0;
  for (const PointMetrics& metrics : points) best = std::max(best, metrics.good_per_second);
  return best;
}

// Closed loops first: the factors multiply the best goodput of them.
absl::StatusOr<std::vector<PointMetrics>> MeasureAll(const Plan& plan, const ServiceLevel& level,
                                                     const Workload& workload,
                                                     const RunLimits& limits, Session& session) {
  std::vector<PointMetrics> points;
  const auto measure = [&](const LoadPoint& point) {
    points.push_back(Measure(RunLoad(session.target().connections, workload, limits, point,
                                     points.size(), session.ServerCpu()),
                             level));
  };
  for (const double callers : plan.concurrency) measure({Loop::kClosed, callers});
  const double best = BestGoodput(points);
  if (best == 0 && !plan.rate_factors.empty()) {
    return FailedPrecondition("no request of the closed loops was good: no rates to multiply");
  }
  for (const double rate : plan.rates) measure({Loop::kOpen, rate});
  for (const double factor : plan.rate_factors) measure({Loop::kOpen, factor * best});
  return points;
}

absl::Status Report(const Session& session, const std::vector<PointMetrics>& points) {
  PrintTables(points, std::cout);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    nlohmann::ordered_json document = {{"benchmark", "serve_bench"}};
    document.update(session.Describe());
    document["workload"] = DescribeWorkload();
    for (const PointMetrics& metrics : points) document["points"].push_back(ToJson(metrics));
    TLM_RETURN_IF_ERROR(WriteJson(document, path));
  }
  const std::string plot = absl::GetFlag(FLAGS_plot);
  if (plot.empty()) return absl::OkStatus();
  return PlotLoadCurve(points, session.Title() + absl::GetFlag(FLAGS_plot_note), plot);
}

absl::Status Run(const std::vector<char*>& arguments) {
  TLM_ASSIGN_OR_RETURN(const Plan plan, PlanFromFlags());
  TLM_ASSIGN_OR_RETURN(const RunLimits limits, LimitsFromFlags());
  TLM_ASSIGN_OR_RETURN(Session session, Session::Open(arguments));
  TLM_ASSIGN_OR_RETURN(const WorkloadOptions options, WorkloadFromFlags());
  TLM_ASSIGN_OR_RETURN(const Workload workload, Workload::Create(options, session.model()));
  std::cout << session.Headline() << std::endl;
  TLM_ASSIGN_OR_RETURN(const std::vector<PointMetrics> points,
                       MeasureAll(plan, ServiceLevelFromFlags(), workload, limits, session));
  return Report(session, points);
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "offers load to a tlm-server and reports throughput, goodput and latencies.\n\n"
      "  serve_bench --target=HOST:PORT --concurrency=1,2,4,8 --json=FILE --plot=FILE.svg\n"
      "  serve_bench --server=PATH --rate=5,10,20 -- --model=DIR ...");
  const absl::Status status = tlm::bench::Run(absl::ParseCommandLine(argc, argv));
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "serve_bench: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}
