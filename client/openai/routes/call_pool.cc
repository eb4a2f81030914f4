#include "client/openai/routes/call_pool.h"

#include <iterator>
#include <system_error>
#include <utility>

#include "model/base/thread_name.h"

namespace tlm::openai {

CallPool::~CallPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool CallPool::Submit(std::vector<Task> tasks) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t free = max_threads_ - running_;
  if (tasks_.size() + tasks.size() > free + max_queued_) return false;
  const size_t before = tasks_.size();
  std::move(tasks.begin(), tasks.end(), std::back_inserter(tasks_));
  StartThreadsLocked();
  if (threads_.empty()) {  // the system has no thread left
    tasks_.resize(before);
    return false;
  }
  changed_.notify_all();
  return true;
}

void CallPool::StartThreadsLocked() {
  while (threads_.size() < max_threads_ && threads_.size() < running_ + tasks_.size()) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      return;
    }
  }
}

void CallPool::Run() {
  NameThisThread("call");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --running_;
  }
}

size_t CallPool::running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_;
}

size_t CallPool::queued() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return tasks_.size();
}

}  // namespace tlm::openai
