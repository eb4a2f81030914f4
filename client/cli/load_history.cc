#include "client/cli/load_history.h"

#include <algorithm>
#include <cmath>

#include "client/cli/base/proto_values.h"

namespace tlm::cli {
namespace {

// What a server sends may be any number.
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

}  // namespace tlm::cli
