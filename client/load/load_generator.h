// Offers load to servers: Generate calls in a closed or an open loop.
#ifndef TLM_CLIENT_LOAD_LOAD_GENERATOR_H_
#define TLM_CLIENT_LOAD_LOAD_GENERATOR_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

#include "client/cpp/cancel_token.h"
#include "client/load/generate_call.h"

namespace tlm::load {

struct LoadOptions {
  // Closed loop: this many callers; each sends its next request when its last one has ended. Open
  // loop: at most this many requests in flight.
  int64_t concurrency = 1;
  // Open loop: requests per second, a Poisson process independent of the answers.
  std::optional<double> rate = {};
  double warmup_seconds = 0;  // load before the measurement
  // The measurement ends with the first of these two. With `requests` it includes the time until
  // the last request ends, within `seconds`.
  double seconds = std::numeric_limits<double>::infinity();
  std::optional<int64_t> requests = {};
  // Calls that still run this long after the last one was sent are cancelled.
  double drain_seconds = std::numeric_limits<double>::infinity();
  uint64_t seed = 0;  // seed of the arrivals
};

// The measured window, and its counts.
struct LoadWindow {
  TimePoint begin = {};
  TimePoint end = {};
  int64_t sent = 0;           // scheduled in the window
  int64_t not_sent = 0;       // scheduled in the window, above `concurrency`
  int64_t events = 0;         // messages with tokens
  int64_t output_tokens = 0;  // tokens of these messages
  int64_t prompt_tokens = 0;  // of calls whose first token arrived in the window, cached or not
  bool interrupted = false;

  bool Contains(TimePoint time) const { return time >= begin && time < end; }
};

struct LoadProgress {
  double done = 0;  // fraction of the measurement, 0 to 1; 0 if it has no end
  bool warming_up = false;
  bool draining = false;  // all requests are sent
  int64_t in_flight = 0;
};

// Run calls it in its own thread. A window whose end is not known yet ends far in the future.
class LoadListener {
 public:
  virtual ~LoadListener() = default;
  // An event with `tokens` tokens arrived.
  virtual void OnTokens(const CallRecord& call, int64_t tokens, const LoadWindow& window) = 0;
  // A call has ended.
  virtual void OnDone(CallRecord call, const LoadWindow& window) = 0;
  // The measured window begins or ends.
  virtual void OnWindow(bool open) = 0;
  // Is called about ten times per second.
  virtual void OnProgress(const LoadProgress& progress, const LoadWindow& window) = 0;
};

// Offers the load. Latencies count from the scheduled start of a request, so that delays of this
// process are not hidden. A caller whose request failed sends the next one after the server's retry
// delay, between 10 ms and 1 s. Not thread-safe; one thread does everything.
class LoadGenerator : public GenerateCall::Listener {
 public:
  // Returns request number `index`.
  using RequestSource = std::function<PlannedRequest(uint64_t index)>;

  // `connections` and `listener` must outlive the generator.
  LoadGenerator(Connections& connections, RequestSource requests, const LoadOptions& options,
                LoadListener& listener);
  ~LoadGenerator() override;

  // Offers the load and waits for running calls. Ends early and cancels them once `cancel` (may be
  // null) is cancelled. Call it once.
  LoadWindow Run(const client::CancelToken* cancel = nullptr);

 private:
  using Due = std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>>;

  void OnTokens(GenerateCall& call, int64_t tokens) override;
  void OnDone(GenerateCall& call) override;

  void Offer();
  void Drain();
  void CancelAll();
  bool Interrupted() const { return cancel_ != nullptr && cancel_->cancelled(); }
  bool Offering(TimePoint now) const;
  // Sends the requests that are due.
  void SendDue();
  void Send(TimePoint due);
  // Handles one event if one comes before `until`.
  void HandleEvent(TimePoint until);
  // Ends the window, now at the latest.
  void CloseWindow();
  void ShowProgress(TimePoint now);

  Connections& connections_;
  const RequestSource requests_;
  const LoadOptions options_;
  LoadListener& listener_;
  const client::CancelToken* cancel_ = nullptr;
  grpc::CompletionQueue queue_;

  LoadWindow window_;
  bool window_open_ = false;
  uint64_t next_request_ = 0;
  int64_t ended_ = 0;  // ended requests of the window
  std::mt19937_64 arrivals_;
  Due due_;
  bool draining_ = false;
  TimePoint next_progress_ = {};
  std::unordered_map<GenerateCall*, std::unique_ptr<GenerateCall>> in_flight_;
};

}  // namespace tlm::load

#endif  // TLM_CLIENT_LOAD_LOAD_GENERATOR_H_
