#include "server/batching/output_mask.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/base/thread_name.h"

namespace tlm {
namespace {

using SteadyClock = std::chrono::steady_clock;

void SetBit(int32_t id, std::vector<uint64_t>& words) {
  const auto bit = static_cast<size_t>(id);
  if (words.size() <= bit / 64) words.resize(bit / 64 + 1);
  words[bit / 64] |= uint64_t{1} << bit % 64;
}

void ClearBit(int32_t id, std::vector<uint64_t>& words) {
  const auto bit = static_cast<size_t>(id);
  if (bit / 64 < words.size()) words[bit / 64] &= ~(uint64_t{1} << bit % 64);
}

}  // namespace

OutputMask::OutputMask(const OutputConstraint& constraint, const Options& options, bool whole)
    : options_(options),
      end_ids_(constraint.end_ids),
      matcher_(constraint.matcher),
      whole_(whole) {}

bool OutputMask::IsEnd(int32_t token) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), token);
}

bool OutputMask::whole() const { return run().empty() ? whole_ : IsEnd(run().front()); }

bool OutputMask::Advance(int32_t token) {
  if (ready() && !run().empty()) {
    ++run_begin_;
    ShowFirstOfRun();
    return true;
  }
  pending_ = token;
  ready_.store(false, std::memory_order_relaxed);
  return false;
}

void OutputMask::ShowFirstOfRun() {
  if (run_begin_ > 0) ClearBit(run_[run_begin_ - 1], first_);
  if (run_begin_ < run_.size()) SetBit(run_[run_begin_], first_);
}

void OutputMask::Compute() {
  if (!run_.empty()) ClearBit(run_.back(), first_);
  run_.clear();
  run_begin_ = 0;
  bool follows = !pending_.has_value() || matcher_.Accept(*std::exchange(pending_, std::nullopt));
  ConstraintMatcher::Allowed allowed;
  while (follows) {
    allowed = matcher_.Next();
    const std::optional<int32_t> forced = Forced(allowed);
    if (!forced.has_value() || !options_.runs || run_.size() == kMaxRun) break;
    run_.push_back(*forced);
    if (IsEnd(*forced)) break;
    follows = matcher_.Accept(*forced);
  }
  if (!follows) allowed = ConstraintMatcher::Allowed();  // nothing may
  SetBehind(allowed);
  ShowFirstOfRun();
  std::shared_ptr<StreamWaker> waker;
  {
    MutexLock lock(&mutex_);
    ready_.store(true, std::memory_order_release);
    waker = std::move(waker_);
    changed_.NotifyAll();
  }
  if (waker != nullptr) waker->Wake();
}

std::optional<int32_t> OutputMask::Forced(const ConstraintMatcher::Allowed& allowed) const {
  if (allowed.whole) {
    return allowed.none && end_ids_.size() == 1 ? std::optional(end_ids_[0]) : std::nullopt;
  }
  return allowed.forced;
}

void OutputMask::SetBehind(const ConstraintMatcher::Allowed& allowed) {
  whole_ = allowed.whole;
  const std::optional<int32_t> forced = Forced(allowed);
  behind_.clear();
  if (forced.has_value()) return SetBit(*forced, behind_);
  behind_.assign(allowed.tokens.begin(), allowed.tokens.end());
  if (!whole_) return;
  for (const int32_t id : end_ids_) SetBit(id, behind_);
}

bool OutputMask::WaitFor(absl::Duration time) const {
  const auto end = SteadyClock::now() + absl::ToChronoNanoseconds(time);
  MutexLock lock(&mutex_);
  while (!ready()) {
    const auto left = end - SteadyClock::now();
    if (left <= SteadyClock::duration::zero()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

std::optional<std::span<const uint64_t>> OutputMask::Await() const {
  if (!ready()) {
    const auto begin = SteadyClock::now();
    const bool in_time = WaitFor(options_.max_wait);
    const int64_t waited = std::chrono::nanoseconds(SteadyClock::now() - begin).count();
    int64_t longest = wait_ns_.load();
    while (waited > longest && !wait_ns_.compare_exchange_weak(longest, waited)) {
    }
    if (!in_time) return std::nullopt;
  }
  return run().empty() ? behind_ : first_;
}

bool OutputMask::WakeWhenReady(std::shared_ptr<StreamWaker> waker) {
  MutexLock lock(&mutex_);
  if (ready()) return false;
  waker_ = std::move(waker);
  return true;
}

MaskPool::~MaskPool() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    threads.swap(threads_);
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads) thread.join();
}

int MaskPool::Threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 4);
}

void MaskPool::Add(std::shared_ptr<OutputMask> mask) {
  MutexLock lock(&mutex_);
  if (threads_.empty()) {
    for (int i = 0; i < Threads(); ++i) threads_.emplace_back([this] { Work(); });
  }
  waiting_.push_back(std::move(mask));
  changed_.NotifyOne();
}

void MaskPool::Work() {
  NameThisThread("mask");
  for (;;) {
    std::shared_ptr<OutputMask> mask;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopped_) changed_.Wait(&mutex_);
      if (stopped_) return;
      mask = std::move(waiting_.front());
      waiting_.pop_front();
    }
    mask->Compute();
  }
}

}  // namespace tlm
