// A small thread pool, fair between tenants, for work that grows with a request, such as tokenizing
// a long text: many requests at once take neither all processors nor all memory.
#ifndef TLM_SERVER_ADMISSION_FAIR_POOL_H_
#define TLM_SERVER_ADMISSION_FAIR_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/mutex.h"

namespace tlm {

struct FairPoolLimits {
  int threads = 1;
  // Of all waiting jobs together.
  int64_t max_waiting_bytes = int64_t{16} << 20;
  // Of one tenant's unread results: while there are more, its jobs wait.
  int64_t max_held_bytes = int64_t{32} << 20;
};

// Jobs of one tenant start in the order of arrival. Tenants with waiting jobs get equal shares, by
// bytes. When there is no room for a job, the tenant with the most waiting bytes loses its latest
// ones, or is refused if the job is its own. The threads have a lower priority than compute
// threads. Thread-safe; no lock is held while a job is called.
class FairPool {
 public:
  // Called exactly once, unless it is withdrawn: with OK on a pool thread, to do the work; with an
  // error on another thread when it was evicted or the pool has stopped.
  using Job = std::function<void(const absl::Status& turn)>;

  // Runs a function when it is destroyed, which must be before the pool is. Move-only.
  class Undo {
   public:
    Undo() = default;
    explicit Undo(std::function<void()> undo) : undo_(std::move(undo)) {}
    Undo(Undo&& other) noexcept { *this = std::move(other); }
    Undo& operator=(Undo&& other) noexcept {
      undo_.swap(other.undo_);
      return *this;
    }
    ~Undo() {
      if (undo_ != nullptr) undo_();
    }

   private:
    std::function<void()> undo_;
  };

  explicit FairPool(const FairPoolLimits& limits);
  // Stop()s.
  ~FairPool();

  // `bytes`: the size of the job, at least 1. The result withdraws a job that still waits.
  // RESOURCE_EXHAUSTED, reason QUEUE_FULL, with a retry time, when there is no room; UNAVAILABLE,
  // reason DRAINING, once stopped.
  absl::StatusOr<Undo> Add(const std::string& tenant, int64_t bytes, Job job);
  // Counts `bytes` of an unread result of the tenant as long as the returned object lives.
  [[nodiscard]] Undo Hold(const std::string& tenant, int64_t bytes);
  // Ends waiting jobs with UNAVAILABLE, reason DRAINING; returns when no job runs. Idempotent; not
  // from two threads at once.
  void Stop();
  // Of the waiting jobs.
  int64_t waiting_bytes() const;

 private:
  struct Waiting {
    int64_t bytes = 0;
    Job job;
  };
  struct Tenant {
    std::map<uint64_t, Waiting> waiting;  // by number: in the order they came
    int64_t waiting_bytes = 0;
    int64_t held_bytes = 0;
    // Bytes of started jobs; after idling at least those of the tenant that had the last turn.
    int64_t begun_bytes = 0;
  };
  using Tenants = std::map<std::string, Tenant>;

  void Work();
  // The tenant whose first job is next; end(): none.
  Tenants::iterator Next() TLM_REQUIRES(mutex_);
  // Makes room for a job of `tenant`; the jobs that lost theirs are added to `evicted`. False when
  // there is none.
  bool MakeRoom(const std::string& tenant, int64_t bytes, std::vector<Job>& evicted)
      TLM_REQUIRES(mutex_);
  Job Remove(Tenant& tenant, std::map<uint64_t, Waiting>::iterator waiting) TLM_REQUIRES(mutex_);
  void ForgetIdle() TLM_REQUIRES(mutex_);
  void Withdraw(const std::string& tenant, uint64_t number);
  void Release(const std::string& tenant, int64_t bytes);

  const FairPoolLimits limits_;
  mutable Mutex mutex_;
  CondVar changed_;
  Tenants tenants_ TLM_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ TLM_GUARDED_BY(mutex_) = 0;
  int64_t turn_ TLM_GUARDED_BY(mutex_) =
      0;  // begun_bytes of the tenant that had the last turn, before it
  uint64_t added_ TLM_GUARDED_BY(mutex_) = 0;
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_FAIR_POOL_H_
