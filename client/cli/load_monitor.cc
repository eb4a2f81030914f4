#include "client/cli/load_monitor.h"

#include <fmt/format.h>

#include <utility>

#include "absl/time/clock.h"

namespace tlm::cli {

absl::StatusOr<std::unique_ptr<LoadMonitor>> LoadMonitor::Create(
    const std::vector<std::string>& targets, const client::ClientOptions& client_options,
    absl::Duration timeout, client::CancelToken* cancel) {
  if (targets.empty() || targets.size() > kMaxServers) {
    return absl::InvalidArgumentError(
        fmt::format("{} servers are named, the range is [1, {}]", targets.size(), kMaxServers));
  }
  // The constructor is private, out of make_unique's reach.
  std::unique_ptr<LoadMonitor> monitor(new LoadMonitor(timeout, cancel));
  for (const std::string& target : targets) {
    auto client = client::AdminClient::Connect(target, client_options);
    if (!client.ok()) return client.status();
    monitor->clients_.push_back(*std::move(client));
    monitor->loads_.emplace_back().target = target;
  }
  return monitor;
}

LoadMonitor::~LoadMonitor() {
  cancel_.Cancel();
  for (std::thread& thread : threads_) thread.join();
}

void LoadMonitor::AskOnce() {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients_.size(); ++i) threads.emplace_back([this, i] { Ask(i); });
  for (std::thread& thread : threads) thread.join();
}

void LoadMonitor::Start(absl::Duration interval) {
  for (size_t i = 0; i < clients_.size(); ++i) {
    threads_.emplace_back([this, i, interval] {
      do {
        Ask(i);
      } while (!cancel_.WaitFor(interval));
    });
  }
}

std::vector<ServerLoad> LoadMonitor::Loads() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return loads_;
}

void LoadMonitor::Ask(size_t server) {
  client::CallOptions options;
  options.timeout = timeout_;
  options.cancel = &cancel_;
  const auto load = clients_[server]->GetLoad(options);
  const absl::Time now = absl::Now();
  std::lock_guard<std::mutex> lock(mutex_);
  ServerLoad& known = loads_[server];
  known.asked = true;
  known.status = load.status();
  if (!load.ok()) {
    known.history.AddGap();
    return;
  }
  known.load = *load;
  known.answered_at = now;
  known.history.Add(*load, now);
}

}  // namespace tlm::cli
