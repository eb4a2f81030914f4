// Compiles the constraints of outputs on its own threads and caches the results.
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
  // Limit for all constraints that are cached or in use: above it nothing is compiled.
  size_t max_used_bytes = size_t{1} << 30;
};

// Caches each tenant's recently used constraints; when all take too much, the tenant with the most
// bytes loses first. Equal requests of a tenant at the same time share one job. Thread-safe.
class ConstraintCompiler {
 public:
  using Done = std::function<void(absl::StatusOr<std::shared_ptr<Constraint>>)>;

  // `tokenizer` may be null: then Compile is not called. `end_tokens` never occur inside a text.
  // Both pointers outlive this object. Starts to prepare the vocabulary.
  ConstraintCompiler(const ConstraintCompilerOptions& options, const Tokenizer* tokenizer,
                     std::vector<int32_t> end_tokens, Metrics* metrics = nullptr);
  // Stop()s.
  ~ConstraintCompiler() { Stop(); }
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // Calls `done` once. With `at_once` and a cached constraint, calls it on this thread; otherwise
  // later, usually on a pool thread, where it may do work of its own. Destroying the result before
  // that withdraws `done` and cancels the job if nothing else waits for it; a call that had already
  // begun may still happen. Errors of Constraint::Compile, exceeded limits with reason
  // CONSTRAINT_TOO_LARGE; RESOURCE_EXHAUSTED, reason QUEUE_FULL, with a retry time, when too much
  // waits or is in use; UNAVAILABLE, reason DRAINING, once stopped.
  [[nodiscard]] FairPool::Undo Compile(const std::string& tenant, ConstraintSpec spec, bool at_once,
                                       Done done);

  // Returns the tokens that end outputs and occur in no text, ascending: the end-of-sequence
  // tokens, and special tokens among the stop tokens. Call only after something was compiled.
  std::vector<int32_t> EndsOf(const StopCriteria& stop);

  // Ends waiting jobs; returns when no job runs. Idempotent. Do not call it from two threads at
  // once.
  void Stop() { pool_.Stop(); }

  // Returns the bytes of the cached constraints.
  size_t kept_bytes();

 private:
  // Tenant and specification.
  using Key = std::pair<std::string, std::string>;
  // One job for all equal requests.
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
  using KeptList = std::list<Kept>;  // last used first
  // Bytes of each constraint that is cached or in use.
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
  std::vector<std::weak_ptr<Constraint>> dropped_ TLM_GUARDED_BY(mutex_);  // may be in use
  uint64_t numbers_ TLM_GUARDED_BY(mutex_) = 0;
  FairPool pool_;  // its jobs use the other members
  FairPool::Undo vocabulary_;
};

}  // namespace tlm

#endif  // TLM_SERVER_CONSTRAINTS_CONSTRAINT_COMPILER_H_
