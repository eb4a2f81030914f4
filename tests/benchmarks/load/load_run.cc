#include "tests/benchmarks/load/load_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <limits>
#include <string>
#include <utility>

#include "client/cli/base/terminal.h"
#include "tests/support/process.h"

namespace tlm::bench {
namespace {

class Recorder final : public load::LoadListener {
 public:
  Recorder(const LoadPoint& point, const std::function<double()>& server_cpu)
      : progress_line_(&std::cerr, isatty(STDERR_FILENO) == 1), server_cpu_(server_cpu) {
    run_.point = point;
  }

  void OnTokens(const load::CallRecord& /*call*/, int64_t /*tokens*/,
                const load::LoadWindow& /*window*/) override {}

  void OnDone(load::CallRecord call, const load::LoadWindow& /*window*/) override {
    run_.calls.push_back(std::move(call));
  }

  void OnWindow(bool open) override {
    const double sign = open ? -1 : 1;
    run_.client_cpu_seconds += sign * OwnCpuSeconds();
    if (server_cpu_ != nullptr) run_.server_cpu_seconds += sign * server_cpu_();
  }

  void OnProgress(const load::LoadProgress& progress, const load::LoadWindow& /*window*/) override {
    progress_line_.Show(progress.done, fmt::format("{}: {} in flight, {} ended", NameOf(run_.point),
                                                   progress.in_flight, run_.calls.size()));
  }

  RunRecord TakeRun() { return std::move(run_); }

 private:
  cli::ProgressLine progress_line_;
  const std::function<double()>& server_cpu_;
  RunRecord run_;
};

}  // namespace

std::string NameOf(const LoadPoint& point) {
  return point.loop == Loop::kClosed ? fmt::format("{:g} callers", point.load)
                                     : fmt::format("{:.4g}/s", point.load);
}

RunRecord RunLoad(load::Connections& connections, const Workload& workload, const RunLimits& limits,
                  const LoadPoint& point, uint64_t run, const std::function<double()>& server_cpu) {
  load::LoadOptions options = {
      .concurrency = limits.max_in_flight,
      .warmup_seconds = limits.warmup_seconds,
      .seconds = limits.seconds,
      .drain_seconds = limits.drain_seconds,
      // Arrivals have their own random numbers, so that rates and loops do not change the requests.
      .seed = workload.options().seed ^ (run + 1) * 0x9e3779b97f4a7c15u};
  if (point.loop == Loop::kClosed) {
    options.concurrency = static_cast<int64_t>(point.load);
  } else {
    options.rate = point.load;
  }
  if (limits.requests > 0) {
    options.requests = limits.requests;
    options.seconds = std::numeric_limits<double>::infinity();
  }
  Recorder recorder(point, server_cpu);
  load::LoadGenerator generator(
      connections, [&](uint64_t index) { return workload.Make(run, index); }, options, recorder);
  const load::LoadWindow window = generator.Run();
  RunRecord record = recorder.TakeRun();
  record.window = window;
  return record;
}

}  // namespace tlm::bench
