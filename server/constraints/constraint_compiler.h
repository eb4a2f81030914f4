// Compiles what outputs must be, on threads of its own, and keeps the results.
#ifndef TLM_SERVER_CONSTRAINTS_CONSTRAINT_COMPILER_H_
#define TLM_SERVER_CONSTRAINTS_CONSTRAINT_COMPILER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/mutex.h"
#include "model/constraint/constraint.h"
#include "model/tokenizer/tokenizer.h"
#include "server/admission/fair_pool.h"
#include "server/batching/request.h"
#include "server/observe/metrics.h"

namespace tlm {

struct ConstraintCompilerOptions {
  static constexpr int kThreads = 2;

  ConstraintLimits limits = {};
  FairPoolLimits pool = {.threads = kThreads};
  size_t max_kept_bytes = size_t{256} << 20;
  size_t max_kept = 1024;
  // Of all that are kept or that outputs still use: above it nothing is compiled.
  size_t max_used_bytes = size_t{1} << 30;
};

// Compiled constraints are kept for each tenant, those used last; when all take too much, the
// tenant with the most loses first. Equal requests of a tenant at the same time are one job.
// Thread-safe.
class ConstraintCompiler {
 public:
  using Done = std::function<void(absl::StatusOr<std::shared_ptr<Constraint>>)>;

  // `tokenizer` may be null: then Compile is not called. `end_tokens` are never
  // inside of a text. Both pointers outlive this. Begins to prepare the vocabulary.
  ConstraintCompiler(const ConstraintCompilerOptions& options, const Tokenizer* tokenizer,
                     std::vector<int32_t> end_tokens, Metrics* metrics = nullptr);
  // Stop()s.
  ~ConstraintCompiler() { Stop(); }
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // Calls `done` once: `at_once` on this thread with a constraint that is kept, else later, mostly
  // on a thread of the pool, where it may do work of its own. Destroying the result before
  // withdraws it and cancels what nothing else waits for; `done` may then still be called, if that
  // had begun. Errors of Constraint::Compile, those over a limit with reason CONSTRAINT_TOO_LARGE;
  // RESOURCE_EXHAUSTED, reason QUEUE_FULL, with a retry time, when too much waits or is in use;
  // UNAVAILABLE, reason DRAINING, once stopped.
  [[nodiscard]] FairPool::Undo Compile(const std::string& tenant, ConstraintSpec spec, bool at_once,
                                       Done done);

  // Tokens that end outputs and stand in no text, ascending: those of end of sequence, and special
  // ones among the stop tokens. Once something was compiled.
  std::vector<int32_t> EndsOf(const StopCriteria& stop);

  // Ends what waits; returns when nothing runs. Idempotent; not from two threads at once.
  void Stop() { pool_.Stop(); }

  // Of the constraints that are kept.
  size_t kept_bytes();

 private:
  // Tenant and specification.
  using Key = std::pair<std::string, std::string>;
  // A job for equal requests.
  struct Job {
    ConstraintSpec spec;
    std::map<uint64_t, Done> waiters;  // by number
    FairPool::Undo turn;
    std::atomic<bool> cancelled{false};
  };
  struct Kept {
    Key key;
    std::shared_ptr<Constraint> constraint;
  };
  using KeptList = std::list<Kept>;  // used last: first
  // Bytes of those that are kept or in use.
  using Sizes = std::unordered_map<const Constraint*, size_t>;

  const std::shared_ptr<const TokenTrie>& Tokens();
  std::shared_ptr<Constraint> Find(const Key& key) TLM_REQUIRES(mutex_);
  void Start(const Key& key, const std::shared_ptr<Job>& job, int64_t bytes);
  void Run(const Key& key, const std::shared_ptr<Job>& job, const absl::Status& turn);
  absl::StatusOr<std::shared_ptr<Constraint>> Make(const Key& key, const Job& job);
  absl::StatusOr<std::shared_ptr<Constraint>> CompileNow(const Job& job);
  void Leave(const Key& key, const std::shared_ptr<Job>& job, uint64_t number);
  void Forget(const Key& key, const std::shared_ptr<Job>& job) TLM_REQUIRES(mutex_);
  Sizes Measure();
  void Keep(const Key& key, std::shared_ptr<Constraint> constraint, const Sizes& sizes)
      TLM_REQUIRES(mutex_);
  void Count(std::string_view result);

  const ConstraintCompilerOptions options_;
  const Tokenizer* const tokenizer_;
  const std::vector<int32_t> end_tokens_;
  Metrics* const metrics_;
  std::once_flag tokens_once_;
  std::shared_ptr<const TokenTrie> tokens_;  // set once

  Mutex mutex_;
  std::map<Key, std::shared_ptr<Job>> jobs_ TLM_GUARDED_BY(mutex_);
  KeptList kept_ TLM_GUARDED_BY(mutex_);
  std::map<Key, KeptList::iterator> kept_by_key_ TLM_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Constraint>> dropped_ TLM_GUARDED_BY(mutex_);  // maybe in use
  uint64_t numbers_ TLM_GUARDED_BY(mutex_) = 0;
  FairPool pool_;  // its jobs use the others
  FairPool::Undo vocabulary_;
};

}  // namespace tlm

#endif  // TLM_SERVER_CONSTRAINTS_CONSTRAINT_COMPILER_H_
