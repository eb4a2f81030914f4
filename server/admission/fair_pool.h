// A small thread pool that is fair between tenants. It runs work that grows with a request, such as
// tokenizing a long text, so that many requests at once take neither all processors nor all memory.
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
  // The limit for all waiting jobs together.
  int64_t max_waiting_bytes = int64_t{16} << 20;
  // The limit for one tenant's unread results: above it, the tenant's jobs wait.
  int64_t max_held_bytes = int64_t{32} << 20;
};

// Jobs of one tenant start in order of arrival. Tenants with waiting jobs get equal shares,
// measured in bytes. When a new job does not fit, the tenant with the most waiting bytes loses its
// latest jobs; if the new job is that tenant's own, it is refused. The threads have a lower
// priority than compute threads. Thread-safe; calls jobs without holding a lock.
class FairPool {
 public:
  // Called exactly once, unless it is withdrawn: with OK on a pool thread, to do the work; or with
  // an error on another thread when it was evicted or the pool has stopped.
  using Job = std::function<void(const absl::Status& turn)>;

  // Runs a function when it is destroyed. Destroy it before the pool. Move-only.
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

  // `bytes`: the size of the job, at least 1. Destroying the result withdraws the job if it still
  // waits. RESOURCE_EXHAUSTED, reason QUEUE_FULL, with a retry time, when there is no room;
  // UNAVAILABLE, reason DRAINING, once stopped.
  absl::StatusOr<Undo> Add(const std::string& tenant, int64_t bytes, Job job);
  // Counts `bytes` of an unread result of the tenant while the returned object lives.
  [[nodiscard]] Undo Hold(const std::string& tenant, int64_t bytes);
  // Ends waiting jobs with UNAVAILABLE, reason DRAINING; returns when no job runs. Idempotent. Do
  // not call it from two threads at once.
  void Stop();
  // Returns the bytes of the waiting jobs.
  int64_t waiting_bytes() const;

 private:
  struct Waiting {
    int64_t bytes = 0;
    Job job;
  };
  struct Tenant {
    std::map<uint64_t, Waiting> waiting;  // by number, in order of arrival
    int64_t waiting_bytes = 0;
    int64_t held_bytes = 0;
    // Bytes of started jobs. After idling, at least as many as the tenant of the last turn had.
    int64_t begun_bytes = 0;
  };
  using Tenants = std::map<std::string, Tenant>;

  void Work();
  // Returns the tenant whose first job runs next; end() when there is none.
  Tenants::iterator Next() TLM_REQUIRES(mutex_);
  // Makes room for a job of `tenant` and adds the evicted jobs to `evicted`. False when there is no
  // room.
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
