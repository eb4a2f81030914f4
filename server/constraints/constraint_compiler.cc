#include "server/constraints/constraint_compiler.h"

#include <algorithm>

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/constraint/mask/token_trie.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

constexpr absl::Duration kRetryAfter = absl::Seconds(1);

}  // namespace

ConstraintCompiler::ConstraintCompiler(const ConstraintCompilerOptions& options,
                                       const Tokenizer* tokenizer, std::vector<int32_t> end_tokens,
                                       Metrics* metrics)
    : options_(options),
      tokenizer_(tokenizer),
      end_tokens_(std::move(end_tokens)),
      metrics_(metrics),
      pool_(options.pool) {
  if (tokenizer_ == nullptr) return;
  absl::StatusOr<FairPool::Undo> turn = pool_.Add("", 1, [this](const absl::Status& status) {
    if (status.ok()) Tokens();
  });
  if (turn.ok()) vocabulary_ = *std::move(turn);
}

const std::shared_ptr<const TokenTrie>& ConstraintCompiler::Tokens() {
  std::call_once(tokens_once_, [this] { tokens_ = TokenTrie::Build(*tokenizer_, end_tokens_); });
  return tokens_;
}

std::vector<int32_t> ConstraintCompiler::EndsOf(const StopCriteria& stop) {
  const TokenTrie& trie = *Tokens();
  std::vector<int32_t> ends = stop.ending_ids.all();
  std::erase_if(ends, [&trie](int32_t token) {
    const std::string_view text = trie.Text(token);
    return !text.empty() && text.front() != kSpecialTokenMark;
  });
  return ends;
}

FairPool::Undo ConstraintCompiler::Compile(const std::string& tenant, ConstraintSpec spec,
                                           bool at_once, Done done) {
  const Key key = {tenant, CacheKey(spec)};
  std::shared_ptr<Constraint> kept;
  std::shared_ptr<Job> job;
  uint64_t number = 0;
  bool is_new = false;
  {
    MutexLock lock(&mutex_);
    if (at_once) kept = Find(key);
    if (kept == nullptr) {
      std::shared_ptr<Job>& known = jobs_[key];
      is_new = known == nullptr;
      if (is_new) {
        known = std::make_shared<Job>();
        known->spec = std::move(spec);
      }
      job = known;
      number = ++numbers_;
      job->waiters.emplace(number, std::move(done));
    }
  }
  if (kept != nullptr) {
    Count("kept");
    done(std::move(kept));
    return FairPool::Undo();
  }
  if (is_new) {
    Start(key, job, static_cast<int64_t>(key.second.size()));
  } else {
    Count("joined");
  }
  return FairPool::Undo([this, key, job, number] { Leave(key, job, number); });
}

void ConstraintCompiler::Start(const Key& key, const std::shared_ptr<Job>& job, int64_t bytes) {
  absl::StatusOr<FairPool::Undo> turn = pool_.Add(
      key.first, bytes, [this, key, job](const absl::Status& status) { Run(key, job, status); });
  if (!turn.ok()) return Run(key, job, turn.status());
  MutexLock lock(&mutex_);
  job->turn = *std::move(turn);
}

void ConstraintCompiler::Run(const Key& key, const std::shared_ptr<Job>& job,
                             const absl::Status& turn) {
  const absl::StatusOr<std::shared_ptr<Constraint>> made =
      turn.ok() ? Make(key, *job) : absl::StatusOr<std::shared_ptr<Constraint>>(turn);
  Sizes sizes = Measure();
  if (made.ok()) sizes[made->get()] = (*made)->bytes();
  std::map<uint64_t, Done> waiters;
  {
    MutexLock lock(&mutex_);
    if (made.ok()) Keep(key, *made, sizes);
    waiters.swap(job->waiters);
    Forget(key, job);
  }
  for (const auto& [number, done] : waiters) done(made);
}

absl::StatusOr<std::shared_ptr<Constraint>> ConstraintCompiler::Make(const Key& key,
                                                                     const Job& job) {
  {
    MutexLock lock(&mutex_);
    if (std::shared_ptr<Constraint> kept = Find(key)) {
      Count("kept");
      return kept;
    }
  }
  size_t used = 0;
  for (const auto& [constraint, bytes] : Measure()) used += bytes;
  if (used <= options_.max_used_bytes) return CompileNow(job);
  return QueueFull(kRetryAfter, "the constraints of running outputs take {} bytes, the limit is {}",
                   used, options_.max_used_bytes);
}

absl::StatusOr<std::shared_ptr<Constraint>> ConstraintCompiler::CompileNow(const Job& job) {
  const std::shared_ptr<const TokenTrie>& tokens = Tokens();
  const absl::Time begin = Clock::Monotonic()->Now();
  absl::StatusOr<std::shared_ptr<Constraint>> made =
      Constraint::Compile(job.spec, tokens, options_.limits, &job.cancelled);
  // Computes the first mask now, so that it is ready when an output needs it.
  if (made.ok()) ConstraintMatcher(*made).Next();
  if (metrics_ != nullptr) metrics_->RecordCompile(Clock::Monotonic()->Now() - begin);
  if (absl::IsResourceExhausted(made.status())) {
    made = WithReason(made.status(), "CONSTRAINT_TOO_LARGE");
  }
  Count(made.ok()                                  ? "compiled"
        : absl::IsCancelled(made.status())         ? "cancelled"
        : absl::IsResourceExhausted(made.status()) ? "too_large"
                                                   : "invalid");
  return made;
}

void ConstraintCompiler::Leave(const Key& key, const std::shared_ptr<Job>& job, uint64_t number) {
  Done withdrawn;  // destroyed without the lock, like the turn
  FairPool::Undo turn;
  MutexLock lock(&mutex_);
  const auto waiter = job->waiters.find(number);
  if (waiter == job->waiters.end()) return;
  withdrawn = std::move(waiter->second);
  job->waiters.erase(waiter);
  if (!job->waiters.empty()) return;
  job->cancelled.store(true, std::memory_order_relaxed);
  turn = std::move(job->turn);
  Forget(key, job);
}

void ConstraintCompiler::Forget(const Key& key, const std::shared_ptr<Job>& job) {
  const auto known = jobs_.find(key);
  if (known != jobs_.end() && known->second == job) jobs_.erase(known);
}

std::shared_ptr<Constraint> ConstraintCompiler::Find(const Key& key) {
  const auto found = kept_by_key_.find(key);
  if (found == kept_by_key_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->constraint;
}

// Measures without the lock, because a constraint that computes a mask answers later.
ConstraintCompiler::Sizes ConstraintCompiler::Measure() {
  std::vector<std::shared_ptr<Constraint>> constraints;
  {
    MutexLock lock(&mutex_);
    std::erase_if(dropped_, [](const auto& dropped) { return dropped.expired(); });
    for (const auto& dropped : dropped_) constraints.push_back(dropped.lock());
    for (const Kept& kept : kept_) constraints.push_back(kept.constraint);
  }
  Sizes sizes;
  for (const auto& constraint : constraints) {
    if (constraint != nullptr) sizes[constraint.get()] = constraint->bytes();
  }
  return sizes;
}

void ConstraintCompiler::Keep(const Key& key, std::shared_ptr<Constraint> constraint,
                              const Sizes& sizes) {
  if (kept_by_key_.contains(key)) return;
  kept_.push_front({key, std::move(constraint)});
  kept_by_key_[key] = kept_.begin();
  const auto size_of = [&](const Kept& kept) {
    const auto known = sizes.find(kept.constraint.get());
    return kept.key.second.size() + (known != sizes.end() ? known->second : 0);
  };
  std::map<std::string, size_t> tenants;
  size_t bytes = 0;
  for (const Kept& kept : kept_) {
    tenants[kept.key.first] += size_of(kept);
    bytes += size_of(kept);
  }
  while ((bytes > options_.max_kept_bytes || kept_.size() > options_.max_kept) &&
         kept_.size() > 1) {
    const auto most =
        std::max_element(tenants.begin(), tenants.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto last = std::find_if(kept_.rbegin(), kept_.rend(),
                                   [&](const Kept& kept) { return kept.key.first == most->first; });
    const auto drop = std::prev(last.base());
    most->second -= size_of(*drop);
    bytes -= size_of(*drop);
    if (most->second == 0) tenants.erase(most);
    dropped_.push_back(drop->constraint);
    kept_by_key_.erase(drop->key);
    kept_.erase(drop);
  }
}

size_t ConstraintCompiler::kept_bytes() {
  const Sizes sizes = Measure();
  MutexLock lock(&mutex_);
  size_t bytes = 0;
  for (const Kept& kept : kept_) {
    const auto known = sizes.find(kept.constraint.get());
    if (known != sizes.end()) bytes += known->second + kept.key.second.size();
  }
  return bytes;
}

void ConstraintCompiler::Count(std::string_view result) {
  if (metrics_ != nullptr) metrics_->CountConstraint(result);
}

}  // namespace tlm
