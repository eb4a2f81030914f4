#include "client/openai/http/connection_table.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/time/clock.h"
#include "model/base/thread_name.h"

namespace tlm::openai {
namespace {

constexpr uint64_t kWakeId = 0;
// How often deadlines are checked.
constexpr int kTickMilliseconds = 500;

}  // namespace

ConnectionTable::ConnectionTable()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  thread_ = std::thread([this] { Run(); });
}

ConnectionTable::~ConnectionTable() {
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  close(epoll_);
}

uint64_t ConnectionTable::Add(int socket, absl::Time deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t id = next_++;
  connections_.emplace(id, Connection{socket, deadline, {}});
  return id;
}

void ConnectionTable::Remove(uint64_t id) {
  Unwatch(id);
  std::lock_guard<std::mutex> lock(mutex_);
  connections_.erase(id);
}

size_t ConnectionTable::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return connections_.size();
}

void ConnectionTable::SetDeadline(uint64_t id, absl::Time deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = connections_.find(id); found != connections_.end()) {
    found->second.deadline = deadline;
  }
}

void ConnectionTable::Watch(uint64_t id, const std::shared_ptr<Exchange>& exchange) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.exchange = exchange;
  epoll_event event = {};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  event.data.u64 = id;
  found->second.watched = epoll_ctl(epoll_, EPOLL_CTL_ADD, found->second.socket, &event) == 0;
}

void ConnectionTable::Unwatch(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.exchange.reset();
  if (std::exchange(found->second.watched, false)) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.socket, nullptr);
  }
}

void ConnectionTable::ShutDownAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, connection] : connections_) shutdown(connection.socket, SHUT_RDWR);
}

void ConnectionTable::ShutDownExpired() {
  const absl::Time now = absl::Now();
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, connection] : connections_) {
    if (now < connection.deadline) continue;
    connection.deadline = absl::InfiniteFuture();
    shutdown(connection.socket, SHUT_RDWR);
  }
}

void ConnectionTable::OnClosed(uint64_t id) {
  std::shared_ptr<Exchange> exchange;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = connections_.find(id);
    if (found != connections_.end()) exchange = found->second.exchange.lock();
  }
  if (exchange != nullptr) exchange->OnGone();
}

void ConnectionTable::Run() {
  NameThisThread("connections");
  std::array<epoll_event, 64> events;
  absl::Time next_check = absl::Now();
  while (true) {
    const int count =
        epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kTickMilliseconds);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      if (events[static_cast<size_t>(i)].data.u64 == kWakeId) return;
      OnClosed(events[static_cast<size_t>(i)].data.u64);
    }
    if (absl::Now() >= next_check) {
      ShutDownExpired();
      next_check = absl::Now() + absl::Milliseconds(kTickMilliseconds);
    }
  }
}

}  // namespace tlm::openai
