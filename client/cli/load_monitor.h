// Polls the load of servers, and keeps its recent history.
#ifndef TLM_CLIENT_CLI_LOAD_MONITOR_H_
#define TLM_CLIENT_CLI_LOAD_MONITOR_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/admin_client.h"
#include "tlm/v1/admin.pb.h"

namespace tlm::cli {

// The last kMaxSamples samples of one server. Does not read a clock.
class LoadHistory {
 public:
  static constexpr size_t kMaxSamples = 512;
  // The window of RecentHitShare.
  static constexpr absl::Duration kRecent = absl::Minutes(1);

  // Drops the counters of the prefix cache when the uptime decreases: the server has restarted.
  void Add(const v1::GetLoadResponse& load, absl::Time now);
  // Adds a missed sample, such as of an unreachable server: its rates count as 0.
  void AddGap();

  // Tokens per second, oldest first.
  const std::deque<double>& prefill() const { return prefill_; }
  const std::deque<double>& decode() const { return decode_; }

  // Returns the share of prefix cache hits among the tokens looked up within kRecent of the last
  // sample; nullopt if no token was looked up.
  std::optional<double> RecentHitShare() const;

 private:
  struct Counts {
    absl::Time at;
    uint64_t queried = 0;
    uint64_t hit = 0;
  };

  void AddRates(double prefill, double decode);

  std::deque<double> prefill_;
  std::deque<double> decode_;
  std::deque<Counts> counts_;  // the samples within kRecent, and one before
  absl::Duration uptime_;
};

struct ServerLoad {
  std::string target;
  bool asked = false;                       // at least one attempt has ended
  absl::Status status;                      // the result of the last attempt
  std::optional<v1::GetLoadResponse> load;  // the last answer
  absl::Time answered_at;                   // the time of the answer, by client::MonotonicNow
  LoadHistory history;
};

// Polls in one thread per server. Thread-safe.
class LoadMonitor {
 public:
  static constexpr size_t kMaxServers = 64;

  // INVALID_ARGUMENT for no server or more than kMaxServers; errors of MakeChannel. A server that
  // does not answer within `timeout` counts as unreachable. `cancel` ends all polling and must
  // outlive the monitor.
  static absl::StatusOr<std::unique_ptr<LoadMonitor>> Create(
      const std::vector<std::string>& targets, const client::ClientOptions& client_options,
      absl::Duration timeout, client::CancelToken* cancel);
  // Cancels running calls.
  ~LoadMonitor();

  // Polls all servers once, concurrently; returns when every call has ended.
  void AskOnce();
  // Starts polling each server, `interval` after the end of its last call. Call at most once.
  void Start(absl::Duration interval);

  // Returns the loads in the order of the targets.
  std::vector<ServerLoad> Loads() const;

 private:
  LoadMonitor(absl::Duration timeout, client::CancelToken* cancel)
      : timeout_(timeout), cancel_(cancel) {}

  void Ask(size_t server);

  const absl::Duration timeout_;
  client::CancelToken cancel_;
  std::vector<std::unique_ptr<client::AdminClient>> clients_;
  mutable std::mutex mutex_;
  std::vector<ServerLoad> loads_;  // guarded by mutex_ (its size is not)
  std::vector<std::thread> threads_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_LOAD_MONITOR_H_
