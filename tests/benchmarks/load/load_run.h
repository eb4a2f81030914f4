// Runs the load generator, and records every call.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_LOAD_RUN_H_
#define TLM_TESTS_BENCHMARKS_LOAD_LOAD_RUN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "client/load/load_generator.h"
#include "tests/benchmarks/load/workload.h"

namespace tlm::bench {

enum class Loop { kClosed, kOpen };

struct LoadPoint {
  Loop loop = Loop::kClosed;
  double load = 1;  // callers of a closed loop; requests per second of an open one
};

// "8 callers", "12.5/s".
std::string NameOf(const LoadPoint& point);

struct RunLimits {
  double warmup_seconds = 2;
  double seconds = 10;  // measured
  // If not 0, the measurement lasts until this many requests have ended, instead of `seconds`.
  int64_t requests = 0;
  double drain_seconds = 60;  // calls still running this long after the last request fail
  int64_t max_in_flight = 16384;
};

struct RunRecord {
  LoadPoint point = {};
  load::LoadWindow window = {};
  std::vector<load::CallRecord> calls = {};  // in the order they ended
  double client_cpu_seconds = 0;             // in the window
  double server_cpu_seconds = 0;             // in the window; 0 if unknown
};

// `run` numbers the runs of one seed; see Workload::Make. `server_cpu` returns the CPU time of the
// server so far, in seconds; may be null. Shows a progress bar on stderr.
RunRecord RunLoad(load::Connections& connections, const Workload& workload, const RunLimits& limits,
                  const LoadPoint& point, uint64_t run, const std::function<double()>& server_cpu);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_LOAD_RUN_H_
