// Offers load to a server and measures what becomes of it.
#ifndef TLM_CLIENT_CLI_BENCH_LOAD_H_
#define TLM_CLIENT_CLI_BENCH_LOAD_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/bench_call.h"
#include "client/cli/bench_options.h"
#include "client/cli/bench_prompts.h"
#include "client/cli/bench_result.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/channel.h"

namespace tlm::cli {

// How far a run is.
struct BenchProgress {
  double done = 0;  // of the measurement, 0 to 1; 0 when there is no end
  bool warming_up = false;
  bool draining = false;  // all are sent; what runs is waited for
  size_t in_flight = 0;
};

// One run. Latencies count from when a request was due, so that what this process loses is not
// hidden. A caller whose request failed sends the next one when the server said, after 10 ms at the
// least and a second at the most. Not thread-safe; one thread does everything.
class BenchLoad final : public BenchCall::Listener {
 public:
  using OnProgress = std::function<void(const BenchProgress&, const BenchResult&)>;

  // `options` and `prompts` outlive this. Errors as MakeChannel.
  static absl::StatusOr<std::unique_ptr<BenchLoad>> Create(
      const BenchOptions& options, const BenchPrompts& prompts,
      const std::vector<std::string>& targets, const client::ClientOptions& client_options);
  ~BenchLoad() override;

  // Connects, offers the load and waits for what runs. Ends early, with what was measured, when
  // `cancel` is cancelled. Calls `on_progress` some times a second. Once.
  BenchResult Run(const client::CancelToken& cancel, const OnProgress& on_progress);

 private:
  using Due = std::priority_queue<absl::Time, std::vector<absl::Time>, std::greater<>>;

  BenchLoad(const BenchOptions& options, const BenchPrompts& prompts, std::string authorization);

  void OnStarted(const BenchCall& call, const v1::GenerateStarted& started) override;
  void OnTokens(const BenchCall& call, uint64_t tokens, std::optional<absl::Duration> gap) override;
  void OnDone(BenchCall& call, const absl::Status& status) override;

  void Connect(const client::CancelToken& cancel);
  void Offer(const client::CancelToken& cancel, const OnProgress& on_progress);
  void Drain(const client::CancelToken& cancel, const OnProgress& on_progress);
  void CancelAll();
  bool Offering(absl::Time now) const;
  // Sends what is due.
  void SendDue();
  void Send(absl::Time due);
  // Handles one event, at the latest until then.
  void HandleEvent(absl::Time until);
  bool IsMeasured(absl::Time time) const { return time >= begin_ && time < end_; }
  // How a measured request ended, `time` after it was due.
  void CountEnd(const absl::Status& status, absl::Duration time);
  void CloseWindow();
  BenchProgress ProgressAt(absl::Time now) const;

  const BenchOptions& options_;
  const BenchPrompts& prompts_;
  const std::string authorization_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<v1::LanguageModel::Stub>> stubs_;  // one a channel
  grpc::CompletionQueue queue_;

  BenchResult result_;
  v1::GenerateRequest request_;
  absl::Time begin_;  // of the measured time
  absl::Time end_;
  uint64_t next_request_ = 0;
  std::mt19937_64 arrivals_;
  Due due_;
  bool draining_ = false;
  std::unordered_map<BenchCall*, std::unique_ptr<BenchCall>> in_flight_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_LOAD_H_
