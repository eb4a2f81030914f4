// Distributes calls over the targets of a client.
#ifndef TLM_CLIENT_CPP_TARGET_PICKER_H_
#define TLM_CLIENT_CPP_TARGET_PICKER_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// Hashes a request's prefix (balance.h); `key` is CallOptions::affinity_key. nullopt if the request
// bypasses the prefix cache or has no input.
std::optional<uint64_t> AffinityOf(const v1::GenerateRequest& request, std::string_view key);

// Hashes with FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t HashOf(std::string_view bytes);

// Scores a target for rendezvous hashing: the target with the largest score comes first. `target`
// is HashOf its name. Thaler and Ravishankar, "Using name-based mappings to increase hit rates",
// 1998.
uint64_t RendezvousScore(uint64_t affinity, uint64_t target);

// Chooses among targets 0 to n - 1, and avoids a target that failed within kAvoidFor unless no
// other is left. Thread-safe.
class TargetPicker {
 public:
  static constexpr absl::Duration kAvoidFor = absl::Seconds(1);
  // A target accepts calls by affinity up to this many running calls, or up to this multiple of the
  // average if that is more.
  static constexpr size_t kFreeCalls = 4;
  static constexpr double kMaxLoadFactor = 1.25;

  // Counts a running call of a target during its lifetime. The picker must outlive it.
  class RunningCall {
   public:
    RunningCall(TargetPicker* picker, size_t target);
    ~RunningCall();
    RunningCall(const RunningCall&) = delete;
    RunningCall& operator=(const RunningCall&) = delete;

   private:
    TargetPicker* const picker_;
    const size_t target_;
  };

  explicit TargetPicker(const std::vector<std::string>& targets);

  size_t size() const { return names_.size(); }
  const std::string& name(size_t target) const { return names_[target]; }

  // Returns the next target, round robin, that is not `excluded`; nullopt if all are.
  std::optional<size_t> Next(absl::Time now, const std::set<size_t>& excluded = {});
  // Returns the target for a call of this affinity; nullopt if all are `excluded`.
  std::optional<size_t> NextFor(uint64_t affinity, absl::Time now,
                                const std::set<size_t>& excluded = {});

  void MarkFailed(size_t target, absl::Time now);
  void MarkServing(size_t target);

 private:
  // Returns the targets that are not excluded, in order, and without those that failed recently if
  // others are left.
  std::vector<size_t> Candidates(absl::Time now, const std::set<size_t>& excluded) const;

  const std::vector<std::string> names_;
  const std::vector<uint64_t> hashes_;  // of names_
  std::mutex mutex_;
  std::vector<absl::Time> failed_;  // guarded by mutex_; time of the last failure
  std::vector<size_t> running_;     // guarded by mutex_
  size_t next_ = 0;                 // guarded by mutex_
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_TARGET_PICKER_H_
