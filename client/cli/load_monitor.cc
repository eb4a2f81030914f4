#include "client/cli/load_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "client/cli/base/messages.h"
#include "client/cpp/client_context.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

// A server may send any number.
double Rate(double value) { return std::isfinite(value) ? std::max(value, 0.0) : 0; }

}  // namespace

void LoadHistory::Add(const v1::GetLoadResponse& load, absl::Time now) {
  const absl::Duration uptime = FromProto(load.uptime());
  if (uptime < uptime_) counts_.clear();
  uptime_ = uptime;
  AddRates(Rate(load.prefill_tokens_per_second()), Rate(load.decode_tokens_per_second()));
  const v1::PrefixCacheLoad& cache = load.prefix_cache();
  counts_.push_back({now, cache.queried_tokens(), cache.hit_tokens()});
  while (counts_.size() > kMaxSamples || (counts_.size() > 2 && counts_[1].at <= now - kRecent)) {
    counts_.pop_front();
  }
}

void LoadHistory::AddGap() { AddRates(0, 0); }

std::optional<double> LoadHistory::RecentHitShare() const {
  if (counts_.empty()) return std::nullopt;
  const Counts& first = counts_.front();
  const Counts& last = counts_.back();
  // A server that restarted between two samples may count less than before.
  if (last.queried <= first.queried || last.hit < first.hit) return std::nullopt;
  return static_cast<double>(last.hit - first.hit) /
         static_cast<double>(last.queried - first.queried);
}

void LoadHistory::AddRates(double prefill, double decode) {
  prefill_.push_back(prefill);
  decode_.push_back(decode);
  if (prefill_.size() > kMaxSamples) {
    prefill_.pop_front();
    decode_.pop_front();
  }
}

absl::StatusOr<std::unique_ptr<LoadMonitor>> LoadMonitor::Create(
    const std::vector<std::string>& targets, const client::ClientOptions& client_options,
    absl::Duration timeout, client::CancelToken* cancel) {
  if (targets.empty() || targets.size() > kMaxServers) {
    return InvalidArgument("{} servers are named, the range is [1, {}]", targets.size(),
                           kMaxServers);
  }
  // The constructor is private, and make_unique cannot call it.
  std::unique_ptr<LoadMonitor> monitor(new LoadMonitor(timeout, cancel));
  for (const std::string& target : targets) {
    TLM_ASSIGN_OR_RETURN(monitor->clients_.emplace_back(),
                         client::AdminClient::Connect(target, client_options));
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
  const absl::Time now = client::MonotonicNow();
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
