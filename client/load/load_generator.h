// Offers load to a server and records what becomes of it.
#ifndef TLM_CLIENT_LOAD_LOAD_GENERATOR_H_
#define TLM_CLIENT_LOAD_LOAD_GENERATOR_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "client/load/generate_call.h"
#include "tests/benchmarks/load/progress_bar.h"
#include "tests/benchmarks/load/target.h"
#include "tests/benchmarks/load/workload.h"

namespace tlm::bench {

// How the load is offered.
enum class Loop {
  kClosed,  // `load` callers, each of which sends its next request when its last one is over
  kOpen,    // `load` requests a second, a Poisson process: arrivals wait for nothing
};

struct LoadPoint {
  Loop loop = Loop::kClosed;
  double load = 1;
};

struct RunLimits {
  double warmup_seconds = 2;
  double seconds = 10;  // measured
  // If not 0, the measurement lasts until so many requests are over, whatever `seconds` says.
  int64_t requests = 0;
  double drain_seconds = 60;  // what is not over so long after the last request fails
  int64_t max_in_flight = 16384;
};

// What was seen. A call's latencies count from when it was due, not from when it was sent, so that
// what this process loses is not hidden.
struct RunRecord {
  LoadPoint point = {};
  TimePoint begin = {};  // of the measured window
  TimePoint end = {};
  std::vector<CallRecord> calls =
      {};                     // all, in the order they ended; those due in the window count
  int64_t not_sent = 0;       // due in the window, over max_in_flight
  int64_t window_events = 0;  // messages that carried tokens
  int64_t window_output_tokens = 0;
  double client_cpu_seconds = 0;  // in the window
  double server_cpu_seconds = 0;  // in the window; 0 when not known
};

// Not thread-safe; one thread does everything.
class LoadGenerator : public GenerateCall::Listener {
 public:
  // `target` and `workload` outlive this. `server_cpu` returns the processor time the server has
  // used, in seconds; may be null.
  LoadGenerator(Target& target, const Workload& workload, const RunLimits& limits,
                std::function<double()> server_cpu);
  ~LoadGenerator() override;

  // `run` numbers the runs of one seed; see Workload::Make.
  RunRecord Run(const LoadPoint& point, uint64_t run);

 private:
  using Due = std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>>;

  void OnTokens(GenerateCall& call, int64_t tokens) override;
  void OnDone(GenerateCall& call) override;

  void Begin(const LoadPoint& point, uint64_t run);
  void OfferLoad(ProgressBar& progress);
  void Drain(ProgressBar& progress);
  void CancelAll();
  // Sends everything that is due.
  void SendDue();
  void Send(TimePoint due);
  // Handles one event, at most until then.
  void HandleEvent(TimePoint until);
  bool InWindow(TimePoint time) const { return time >= run_.begin && time < run_.end; }
  bool Offering() const;
  void OpenWindow();
  void CloseWindow();
  std::string Situation() const;

  Target& target_;
  const Workload& workload_;
  const RunLimits limits_;
  const std::function<double()> server_cpu_;
  grpc::CompletionQueue queue_;

  RunRecord run_;
  uint64_t run_number_ = 0;
  uint64_t next_request_ = 0;
  Random random_;
  Due due_;
  std::unordered_map<GenerateCall*, std::unique_ptr<GenerateCall>> in_flight_;
  bool window_open_ = false;
  int64_t measured_sent_ = 0;
};

}  // namespace tlm::bench

#endif  // TLM_CLIENT_LOAD_LOAD_GENERATOR_H_
