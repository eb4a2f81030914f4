// What a server's load was lately.
#ifndef TLM_CLIENT_CLI_LOAD_HISTORY_H_
#define TLM_CLIENT_CLI_LOAD_HISTORY_H_

#include <cstddef>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "tlm/v1/admin.pb.h"

namespace tlm::cli {

// The last kMaxSamples samples. Pure state: no clock.
class LoadHistory {
 public:
  static constexpr size_t kMaxSamples = 512;
  // How long "lately" is for shares.
  static constexpr absl::Duration kRecent = absl::Minutes(1);

  // A server whose uptime went back was started anew: what it had counted before is forgotten.
  void Add(const v1::GetLoadResponse& load, absl::Time now);
  // A sample was missed, as when the server could not be reached: its rates were 0.
  void AddGap();

  // Tokens a second, the oldest first.
  const std::deque<double>& prefill() const { return prefill_; }
  const std::deque<double>& decode() const { return decode_; }

  // Of the tokens that were looked up in the prefix cache within kRecent of the latest sample, the
  // share that was found; none when there were none.
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
  std::deque<Counts> counts_;  // those within kRecent, and one before
  absl::Duration uptime_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_LOAD_HISTORY_H_
