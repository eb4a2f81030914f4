// Spreads calls over the targets of a client.
#ifndef TLM_CLIENT_CPP_TARGET_PICKER_H_
#define TLM_CLIENT_CPP_TARGET_PICKER_H_

#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "absl/time/time.h"

namespace tlm::client {

// Round robin over targets 0 to n - 1; one that failed within kAvoidFor comes only where no other
// is left. Thread-safe.
class TargetPicker {
 public:
  static constexpr absl::Duration kAvoidFor = absl::Seconds(1);

  explicit TargetPicker(size_t targets) : failed_(targets, absl::InfinitePast()) {}

  size_t size() const { return failed_.size(); }

  // The next target that is not `excluded`; none when all are.
  std::optional<size_t> Next(absl::Time now, const std::set<size_t>& excluded = {});

  void MarkFailed(size_t target, absl::Time now);
  void MarkServing(size_t target);

 private:
  std::mutex mutex_;
  std::vector<absl::Time> failed_;  // guarded by mutex_ (its size is not); when last
  size_t next_ = 0;                 // guarded by mutex_
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_TARGET_PICKER_H_
