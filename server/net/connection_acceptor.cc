#include "server/net/connection_acceptor.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "model/base/thread_name.h"
#include "server/net/lingering_close.h"
#include "server/net/read_throttle.h"

namespace tlm {
namespace {

// Files, sockets and events of the server itself, including those of a GPU.
constexpr int64_t kOwnDescriptors = 256;
// Kept free below the system's limit, because files are also opened while the server runs.
constexpr int64_t kSpareDescriptors = 64;
constexpr int64_t kMinBudget = 16;
// Pause when descriptors or memory have run out: trying again at once would only waste time.
constexpr int kExhaustedMs = 100;
// Pause until gRPC has read from some of the connections that it was given.
constexpr int kFullMs = 5;
constexpr std::chrono::seconds kRefusalReportInterval(10);
// Interval between polls of the connections.
constexpr int kPollMs = 100;
// The most connections accepted in one go, so that the ports of a process and a stop get their
// turn.
constexpr int kAtATime = 256;

int64_t SteadyNanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool IsExhaustion(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

int64_t DescriptorBudget(int64_t max_connections, int64_t extra) {
  int64_t budget = max_connections + kOwnDescriptors;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    budget = std::min(budget, static_cast<int64_t>(limit.rlim_cur) - kSpareDescriptors);
  }
  return std::max(budget, kMinBudget) + std::min(extra, kSpareDescriptors / 2);
}

ConnectionAcceptor::ConnectionAcceptor(ListeningSockets sockets, std::unique_ptr<Server> server,
                                       int64_t descriptor_budget, int64_t max_streams)
    : sockets_(std::move(sockets)),
      port_(sockets_.port()),
      server_(std::move(server)),
      budget_(descriptor_budget),
      max_streams_(max_streams),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Their threads start before connections need them.
  ReadThrottle::OfProcess();
  LingeringClose::OfProcess();
  thread_ = std::thread([this] { Run(); });
}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
  close(stop_event_);
}

void ConnectionAcceptor::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_event_, 1);
  thread_.join();
  sockets_.Close();
}

void ConnectionAcceptor::Run() {
  NameThisThread("acceptor");
  std::vector<pollfd> events;
  for (const int listener : sockets_.descriptors()) events.push_back({listener, POLLIN, 0});
  events.push_back({stop_event_, POLLIN, 0});
  for (bool stopping = false; !stopping;) {
    const int wait_ms = watch_.empty() ? -1 : kPollMs;
    if (poll(events.data(), events.size(), wait_ms) < 0 && errno != EINTR) {
      spdlog::error("no more connections are accepted on port {}: {}", port_, std::strerror(errno));
      return;
    }
    stopping = events.back().revents != 0;
    PollConnections();
    for (const int listener : sockets_.descriptors()) {
      const int pause_ms = AcceptAll(listener, stopping);
      if (pause_ms > 0 && !stopping) Pause(pause_ms);
    }
  }
}

int ConnectionAcceptor::AcceptAll(int listener, bool stopping) {
  for (int i = 0; i < kAtATime; ++i) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) {
      Take(listener, connection);
      if (!stopping && ReadThrottle::OfProcess().IsFull()) return kFullMs;
      continue;
    }
    if (errno == EAGAIN) return 0;
    if (!IsExhaustion(errno)) continue;  // this connection is gone already
    NoteRefused(std::strerror(errno));
    return kExhaustedMs;
  }
  return 0;
}

void ConnectionAcceptor::Take(int listener, int connection) {
  // The system gives the lowest free number, so at least as many descriptors are open.
  if (connection >= budget_) {
    close(connection);
    NoteRefused("--max_connections, or the system's limit of open files, is reached");
    return;
  }
  if (IsClosedByPeer(connection)) {
    close(connection);
    return;
  }
  watch_.Add(connection);
  ReadThrottle::OfProcess().Add(connection, max_streams_);
  LingeringClose::OfProcess().Add(connection);
  Server::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = connection;
  server_->HandleNewConnection(&parameters);
}

void ConnectionAcceptor::NoteRefused(const char* why) {
  ++refused_;
  const int64_t now = SteadyNanoseconds();
  if (now < next_report_ns_) return;
  next_report_ns_ = now + std::chrono::nanoseconds(kRefusalReportInterval).count();
  spdlog::warn("port {}: {} connections refused: {}", port_, std::exchange(refused_, 0), why);
}

void ConnectionAcceptor::PollConnections() {
  const int64_t now = SteadyNanoseconds();
  if (now < next_poll_ns_) return;
  next_poll_ns_ = now + int64_t{kPollMs} * 1'000'000;
  if (const int cut = watch_.CutFloods(now); cut > 0) {
    spdlog::warn("port {}: {} flooding connections closed", port_, cut);
  }
}

void ConnectionAcceptor::Pause(int ms) {
  pollfd stop{stop_event_, POLLIN, 0};
  poll(&stop, 1, ms);
}

}  // namespace tlm
