#include "server/admission/fair_pool.h"

#include <algorithm>
#include <iterator>

#include "absl/time/time.h"
#include "model/base/errors.h"
#include "model/base/thread_name.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

constexpr absl::Duration kPoolRetryAfter = absl::Seconds(1);
constexpr int kNice = 10;

absl::Status FullStatus(int64_t bytes, int64_t limit) {
  return QueueFull(kPoolRetryAfter,
                   "{} bytes more of text to read exceed the limit of {} that wait", bytes, limit);
}

absl::Status StoppedStatus() {
  return WithRetryAfter(WithReason(Unavailable("the server is shutting down"), "DRAINING"),
                        kPoolRetryAfter);
}

}  // namespace

FairPool::FairPool(const FairPoolLimits& limits) : limits_(limits) {
  for (int i = 0; i < limits.threads; ++i) threads_.emplace_back([this] { Work(); });
}

FairPool::~FairPool() { Stop(); }

absl::StatusOr<FairPool::Undo> FairPool::Add(const std::string& tenant, int64_t bytes, Job job) {
  std::vector<Job> evicted;
  absl::StatusOr<Undo> result = FullStatus(bytes, limits_.max_waiting_bytes);
  {
    MutexLock lock(&mutex_);
    if (stopped_) return StoppedStatus();
    if (MakeRoom(tenant, bytes, evicted)) {
      Tenant& line = tenants_[tenant];
      if (line.waiting.empty()) line.begun_bytes = std::max(line.begun_bytes, turn_);
      line.waiting.emplace(++added_, Waiting{bytes, std::move(job)});
      line.waiting_bytes += bytes;
      waiting_bytes_ += bytes;
      result = Undo([this, tenant, number = added_] { Withdraw(tenant, number); });
      changed_.NotifyOne();
    }
  }
  for (const Job& lost : evicted) lost(FullStatus(bytes, limits_.max_waiting_bytes));
  return result;
}

bool FairPool::MakeRoom(const std::string& tenant, int64_t bytes, std::vector<Job>& evicted) {
  const auto own = tenants_.find(tenant);
  const int64_t own_bytes = bytes + (own == tenants_.end() ? 0 : own->second.waiting_bytes);
  while (waiting_bytes_ + bytes > limits_.max_waiting_bytes) {
    const auto most = std::max_element(tenants_.begin(), tenants_.end(), [](auto& a, auto& b) {
      return a.second.waiting_bytes < b.second.waiting_bytes;
    });
    if (most == tenants_.end() || most->second.waiting_bytes <= own_bytes) return false;
    evicted.push_back(Remove(most->second, std::prev(most->second.waiting.end())));
  }
  return true;
}

FairPool::Job FairPool::Remove(Tenant& tenant, std::map<uint64_t, Waiting>::iterator waiting) {
  Job job = std::move(waiting->second.job);
  tenant.waiting_bytes -= waiting->second.bytes;
  waiting_bytes_ -= waiting->second.bytes;
  tenant.waiting.erase(waiting);
  return job;
}

FairPool::Tenants::iterator FairPool::Next() {
  auto next = tenants_.end();
  for (auto line = tenants_.begin(); line != tenants_.end(); ++line) {
    const Tenant& tenant = line->second;
    if (tenant.waiting.empty() || tenant.held_bytes > limits_.max_held_bytes) continue;
    if (next == tenants_.end() || tenant.begun_bytes < next->second.begun_bytes) next = line;
  }
  return next;
}

void FairPool::Work() {
  NameThisThread("texts");
  LowerPriority(kNice);
  while (true) {
    Job job;
    {
      MutexLock lock(&mutex_);
      auto next = Next();
      while (!stopped_ && next == tenants_.end()) {
        changed_.Wait(&mutex_);
        next = Next();
      }
      if (stopped_) return;
      Tenant& tenant = next->second;
      turn_ = tenant.begun_bytes;
      tenant.begun_bytes += tenant.waiting.begin()->second.bytes;
      job = Remove(tenant, tenant.waiting.begin());
      ForgetIdle();
    }
    job(absl::OkStatus());
  }
}

// Forgets tenants without state: they have had no more bytes than others, or no job waits.
void FairPool::ForgetIdle() {
  std::erase_if(tenants_, [this](const auto& line) {
    const Tenant& tenant = line.second;
    return tenant.waiting.empty() && tenant.held_bytes == 0 &&
           (tenant.begun_bytes <= turn_ || waiting_bytes_ == 0);
  });
}

void FairPool::Withdraw(const std::string& tenant, uint64_t number) {
  Job withdrawn;  // destroyed without the lock
  MutexLock lock(&mutex_);
  const auto line = tenants_.find(tenant);
  if (line == tenants_.end()) return;
  const auto waiting = line->second.waiting.find(number);
  if (waiting != line->second.waiting.end()) withdrawn = Remove(line->second, waiting);
}

FairPool::Undo FairPool::Hold(const std::string& tenant, int64_t bytes) {
  MutexLock lock(&mutex_);
  tenants_[tenant].held_bytes += bytes;
  return Undo([this, tenant, bytes] { Release(tenant, bytes); });
}

void FairPool::Release(const std::string& tenant, int64_t bytes) {
  MutexLock lock(&mutex_);
  tenants_[tenant].held_bytes -= bytes;
  changed_.NotifyAll();
}

void FairPool::Stop() {
  std::vector<Job> waiting;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    for (auto& [name, tenant] : tenants_) {
      while (!tenant.waiting.empty()) waiting.push_back(Remove(tenant, tenant.waiting.begin()));
    }
    changed_.NotifyAll();
  }
  for (const Job& job : waiting) job(StoppedStatus());
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int64_t FairPool::waiting_bytes() const {
  MutexLock lock(&mutex_);
  return waiting_bytes_;
}

}  // namespace tlm
