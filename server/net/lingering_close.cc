#include "server/net/lingering_close.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "model/base/thread_name.h"
#include "server/net/connection_watch.h"

namespace tlm {
namespace {

std::atomic<LingeringClose*> closer_of_process = nullptr;

int ShutdownNow(int descriptor, int how) {
  return static_cast<int>(syscall(SYS_shutdown, descriptor, how));
}

int Epoll(int set, int operation, int descriptor, epoll_event* event) {
  return static_cast<int>(syscall(SYS_epoll_ctl, set, operation, descriptor, event));
}

}  // namespace

LingeringClose& LingeringClose::OfProcess() {
  static LingeringClose* const closer = [] {
    auto* const created = new LingeringClose;
    closer_of_process = created;
    return created;
  }();
  return *closer;
}

LingeringClose::LingeringClose(std::chrono::milliseconds max_time)
    : max_time_(max_time),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

LingeringClose::~LingeringClose() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  for (const Socket& socket : sockets_) close(socket.descriptor);
  close(wake_);
}

void LingeringClose::Add(int descriptor) {
  MutexLock lock(&mutex_);
  added_[descriptor] = {.cookie = SocketCookie(descriptor)};
}

void LingeringClose::NoteWatched(int set, int descriptor) {
  MutexLock lock(&mutex_);
  const auto added = added_.find(descriptor);
  if (added != added_.end()) added->second.epoll_set = set;
}

bool LingeringClose::Begin(int descriptor) {
  {
    MutexLock lock(&mutex_);
    const auto found = added_.find(descriptor);
    if (found == added_.end()) return false;
    const Added added = found->second;
    added_.erase(found);
    if (added.cookie != SocketCookie(descriptor) || IsClosedByPeer(descriptor)) return false;
    if (sockets_.size() >= kMaxSockets) return false;
    // A set watches a socket until its last descriptor is closed, and the duplicate stays open.
    if (Epoll(added.epoll_set, EPOLL_CTL_DEL, descriptor, nullptr) != 0) return false;
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return false;
    ShutdownNow(own, SHUT_WR);
    sockets_.push_back({.descriptor = own, .deadline = Clock::now() + max_time_});
  }
  eventfd_write(wake_, 1);
  return true;
}

void LingeringClose::AwaitAll() {
  const Clock::time_point deadline = Clock::now() + max_time_;
  MutexLock lock(&mutex_);
  while (!sockets_.empty() && Clock::now() < deadline) {
    none_left_.WaitFor(&mutex_, deadline - Clock::now());
  }
}

bool LingeringClose::IsOver(Socket& socket, Clock::time_point now) {
  char dropped[4096];
  while (socket.received < kMaxBytes && now < socket.deadline) {
    const ssize_t received =
        recv(socket.descriptor, dropped, sizeof(dropped), MSG_DONTWAIT | MSG_TRUNC);
    if (received <= 0) return received == 0 || (errno != EAGAIN && errno != EINTR);
    socket.received += static_cast<size_t>(received);
  }
  return true;
}

void LingeringClose::Run() {
  NameThisThread("lingering-close");
  std::vector<pollfd> events;
  for (;;) {
    int wait_ms = -1;
    events.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      const Clock::time_point now = Clock::now();
      std::erase_if(sockets_, [now](Socket& socket) {
        const bool over = IsOver(socket, now);
        if (over) close(socket.descriptor);
        return over;
      });
      if (sockets_.empty()) none_left_.NotifyAll();
      for (const Socket& socket : sockets_) {
        events.push_back({.fd = socket.descriptor, .events = POLLIN, .revents = 0});
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(socket.deadline - now);
        wait_ms = std::min(wait_ms < 0 ? static_cast<int>(left.count()) : wait_ms,
                           static_cast<int>(left.count()));
      }
    }
    poll(events.data(), events.size(), wait_ms);
    eventfd_t wakes = 0;
    eventfd_read(wake_, &wakes);
  }
}

}  // namespace tlm

// In place of the C library's, for gRPC, which calls the first for every new connection and the
// second before it closes one.
extern "C" int epoll_ctl(int set, int operation, int descriptor, epoll_event* event) noexcept {
  tlm::LingeringClose* const closer = tlm::closer_of_process;
  if (closer != nullptr && operation == EPOLL_CTL_ADD) closer->NoteWatched(set, descriptor);
  return tlm::Epoll(set, operation, descriptor, event);
}

extern "C" int shutdown(int descriptor, int how) noexcept {
  tlm::LingeringClose* const closer = tlm::closer_of_process;
  if (closer != nullptr && how == SHUT_RDWR && closer->Begin(descriptor)) return 0;
  return tlm::ShutdownNow(descriptor, how);
}
