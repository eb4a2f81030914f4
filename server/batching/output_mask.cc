#include "server/batching/output_mask.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/base/thread_name.h"
#include "server/batching/request.h"

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

bool HasBit(int32_t id, std::span<const uint64_t> words) {
  const auto bit = static_cast<size_t>(id);
  return bit / 64 < words.size() && (words[bit / 64] >> bit % 64 & 1) != 0;
}

bool IsEnd(int32_t token, std::span<const int32_t> end_ids) {
  return std::binary_search(end_ids.begin(), end_ids.end(), token);
}

// Returns the only token that may follow, if there is just one.
std::optional<int32_t> Forced(const ConstraintMatcher::Allowed& allowed,
                              std::span<const int32_t> end_ids) {
  if (allowed.may_end) {
    return allowed.no_token && end_ids.size() == 1 ? std::optional(end_ids[0]) : std::nullopt;
  }
  return allowed.forced;
}

void SetMask(const ConstraintMatcher::Allowed& allowed, std::span<const int32_t> end_ids,
             std::vector<uint64_t>& words) {
  words.clear();
  const std::optional<int32_t> forced = Forced(allowed, end_ids);
  if (forced.has_value()) return SetBit(*forced, words);
  words.assign(allowed.tokens.begin(), allowed.tokens.end());
  if (!allowed.may_end) return;
  for (const int32_t id : end_ids) SetBit(id, words);
}

}  // namespace

OutputMask::OutputMask(const OutputConstraint& constraint, const Options& options, bool whole)
    : options_(options),
      end_ids_(constraint.end_ids),
      matcher_(constraint.matcher),
      whole_(whole) {}

bool OutputMask::whole() const { return run().empty() ? whole_ : IsEnd(run().front(), end_ids_); }

bool OutputMask::Advance(int32_t token) {
  MutexLock lock(&mutex_);
  ++advances_;
  if (ready() && !run().empty()) {
    ++run_begin_;
    ShowFirstOfRun();
    return true;
  }
  pending_.push_back(token);
  ready_.store(false, std::memory_order_relaxed);
  late_ = false;
  return false;
}

void OutputMask::ShowFirstOfRun() {
  if (run_begin_ > 0) ClearBit(run_[run_begin_ - 1], first_);
  if (run_begin_ < run_.size()) SetBit(run_[run_begin_], first_);
}

std::vector<std::weak_ptr<DraftMasks>> OutputMask::Compute() {
  if (!run_.empty()) ClearBit(run_.back(), first_);
  run_.clear();
  run_begin_ = 0;
  bool follows = true;
  for (const int32_t token : pending_) follows = follows && matcher_.Accept(token);
  pending_.clear();
  ConstraintMatcher::Allowed allowed;
  while (follows) {
    allowed = matcher_.Next();
    const std::optional<int32_t> forced = Forced(allowed, end_ids_);
    if (!forced.has_value() || !options_.runs || run_.size() == kMaxRun) break;
    run_.push_back(*forced);
    if (IsEnd(*forced, end_ids_)) break;
    follows = matcher_.Accept(*forced);
  }
  if (!follows) allowed = ConstraintMatcher::Allowed();  // no token may follow
  whole_ = allowed.may_end;
  SetMask(allowed, end_ids_, after_);
  ShowFirstOfRun();
  std::shared_ptr<StreamWaker> waker;
  std::vector<std::weak_ptr<DraftMasks>> waiting;
  {
    MutexLock lock(&mutex_);
    ready_.store(true, std::memory_order_release);
    waker = std::move(waker_);
    waiting.swap(waiting_);
    changed_.NotifyAll();
  }
  if (waker != nullptr) waker->Wake();
  return waiting;
}

std::optional<OutputMask::Known> OutputMask::KnownNow() const {
  MutexLock lock(&mutex_);
  if (!ready()) return std::nullopt;
  return Known{.run = {run().begin(), run().end()},
               .first = run().empty() ? after_ : first_,
               .matcher = matcher_,
               .whole = whole_,
               .after = after_};
}

bool OutputMask::LetWait(std::weak_ptr<DraftMasks> masks) {
  MutexLock lock(&mutex_);
  if (ready()) return false;
  waiting_.push_back(std::move(masks));
  return true;
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
    NoteWait(std::chrono::nanoseconds(SteadyClock::now() - begin).count());
    if (!in_time) {
      late_ = true;
      return std::nullopt;
    }
  }
  return run().empty() ? after_ : first_;
}

void OutputMask::NoteWait(int64_t nanoseconds) const {
  int64_t longest = wait_ns_.load();
  while (nanoseconds > longest && !wait_ns_.compare_exchange_weak(longest, nanoseconds)) {
  }
}

bool OutputMask::WakeWhenReady(std::shared_ptr<StreamWaker> waker) {
  MutexLock lock(&mutex_);
  if (ready()) return false;
  waker_ = std::move(waker);
  return true;
}

DraftMasks::DraftMasks(std::shared_ptr<OutputMask> base, std::vector<int32_t> draft)
    : base_(std::move(base)),
      advances_(base_->advances_),
      draft_(std::move(draft)),
      masks_(draft_.size()) {
  for (size_t i = 0; i < masks_.size(); ++i) {
    masks_[i].draft = this;
    masks_[i].count = i + 1;
  }
}

bool DraftMasks::ComputeNext() {
  {
    MutexLock lock(&mutex_);
    if (ended_) return false;
  }
  const size_t count = found_;
  if (count == 0) known_ = base_->KnownNow();
  // Compared after KnownNow, so that `known_` belongs to that count.
  const bool as_before = base_->advances_ == advances_;
  if (!as_before || !known_.has_value() || count == draft_.size() || !Find(count)) {
    End();
    return false;
  }
  MutexLock lock(&mutex_);
  found_.store(count + 1, std::memory_order_release);
  changed_.NotifyAll();
  return count + 1 < draft_.size();
}

bool DraftMasks::Find(size_t count) {
  const int32_t token = draft_[count];
  if (!HasBit(token, count == 0 ? known_->first : masks_[count - 1].words)) return false;
  if (IsEnd(token, base_->end_ids_)) return false;
  Mask& mask = masks_[count];
  if (count + 1 < known_->run.size()) {
    const int32_t next = known_->run[count + 1];
    mask.whole = IsEnd(next, base_->end_ids_);
    SetBit(next, mask.words);
  } else if (count + 1 == known_->run.size()) {
    mask.whole = known_->whole;
    mask.words = std::move(known_->after);
  } else {
    ConstraintMatcher::Allowed allowed;
    if (known_->matcher.Accept(token)) allowed = known_->matcher.Next();
    mask.whole = allowed.may_end;
    SetMask(allowed, base_->end_ids_, mask.words);
  }
  return true;
}

void DraftMasks::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

bool DraftMasks::WaitFor(size_t count) const {
  const bool base_is_late = base_->IsLate();
  const auto begin = SteadyClock::now();
  const auto end = begin + absl::ToChronoNanoseconds(base_->options().max_wait);
  MutexLock lock(&mutex_);
  ended_ = ended_ || base_is_late;
  while (found_ < count && !ended_) {
    const auto left = end - SteadyClock::now();
    ended_ = left <= SteadyClock::duration::zero();
    if (!ended_) changed_.WaitFor(&mutex_, left);
  }
  if (ended_) changed_.NotifyAll();
  base_->NoteWait(std::chrono::nanoseconds(SteadyClock::now() - begin).count());
  return found_ >= count;
}

std::optional<std::span<const uint64_t>> DraftMasks::Mask::Await() const {
  const bool known = draft->found_.load(std::memory_order_acquire) >= count;
  if (!known && !draft->WaitFor(count)) return std::nullopt;
  return words;
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

void MaskPool::StartThreads() {
  if (!threads_.empty()) return;
  for (int i = 0; i < Threads(); ++i) threads_.emplace_back([this] { Work(); });
}

void MaskPool::Add(std::shared_ptr<OutputMask> mask) {
  MutexLock lock(&mutex_);
  StartThreads();
  waiting_.push_back(std::move(mask));
  changed_.NotifyOne();
}

void MaskPool::Add(const std::shared_ptr<DraftMasks>& masks) {
  if (masks->base_->LetWait(masks)) return;
  MutexLock lock(&mutex_);
  StartThreads();
  drafts_.push_back(masks);
  changed_.NotifyOne();
}

void MaskPool::Work() {
  NameThisThread("mask");
  for (;;) {
    std::shared_ptr<OutputMask> mask;
    std::weak_ptr<DraftMasks> draft;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && drafts_.empty() && !stopped_) changed_.Wait(&mutex_);
      if (stopped_) return;
      if (!waiting_.empty()) {
        mask = std::move(waiting_.front());
        waiting_.pop_front();
      } else {
        draft = std::move(drafts_.front());
        drafts_.pop_front();
      }
    }
    std::vector<std::weak_ptr<DraftMasks>> more;
    if (mask != nullptr) {
      more = mask->Compute();
    } else if (const std::shared_ptr<DraftMasks> masks = draft.lock();
               masks != nullptr && masks->ComputeNext()) {
      more.push_back(masks);
    }
    MutexLock lock(&mutex_);
    for (std::weak_ptr<DraftMasks>& masks : more) drafts_.push_back(std::move(masks));
    if (more.size() > 1) changed_.NotifyAll();
  }
}

}  // namespace tlm
