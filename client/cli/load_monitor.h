// Asks servers for their load again and again.
#ifndef TLM_CLIENT_CLI_LOAD_MONITOR_H_
#define TLM_CLIENT_CLI_LOAD_MONITOR_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/load_history.h"
#include "client/cpp/admin_client.h"

namespace tlm::cli {

// What is known of one server.
struct ServerLoad {
  std::string target;
  bool asked = false;                       // it has answered or failed to
  absl::Status status;                      // of the last attempt
  std::optional<v1::GetLoadResponse> load;  // the last answer
  absl::Time answered_at;                   // when that came
  LoadHistory history;
};

// Thread-safe. Uses one thread a server.
class LoadMonitor {
 public:
  static constexpr size_t kMaxServers = 64;

  // INVALID_ARGUMENT for no server or more than kMaxServers; otherwise as MakeChannel. A server
  // that does not answer within `timeout` counts as not reachable. `cancel`, which outlives this,
  // ends what is being asked, and all asking.
  static absl::StatusOr<std::unique_ptr<LoadMonitor>> Create(
      const std::vector<std::string>& targets, const client::ClientOptions& client_options,
      absl::Duration timeout, client::CancelToken* cancel);
  // Cancels what is being asked.
  ~LoadMonitor();

  // Asks every server once, all at the same time, and returns when each has answered or not.
  void AskOnce();
  // Goes on asking each server, `interval` after it has answered or not, until the end. Once.
  void Start(absl::Duration interval);

  // In the order of the targets.
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
