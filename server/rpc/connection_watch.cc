#include "server/rpc/connection_watch.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <optional>

namespace tlm {
namespace {

// 0: not a socket any more.
uint64_t CookieOf(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::optional<ConnectionTraffic> TrafficOf(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  int unread = 0;
  if (ioctl(descriptor, FIONREAD, &unread) != 0) return std::nullopt;
  return ConnectionTraffic{info.tcpi_bytes_received - static_cast<uint64_t>(unread),
                           info.tcpi_bytes_sent};
}

// Through a descriptor of its own, which nobody closes and uses again in between.
bool Cut(int descriptor, uint64_t cookie) {
  const int own = dup(descriptor);
  if (own < 0) return false;
  const bool same = CookieOf(own) == cookie;
  if (same) shutdown(own, SHUT_RDWR);
  close(own);
  return same;
}

}  // namespace

bool TrafficJudge::IsFlood(const ConnectionTraffic& traffic, int64_t now_ns) {
  if (since_ns_ < 0 || traffic.sent != last_.sent || traffic.read == last_.read) {
    since_ns_ = now_ns;
    read_then_ = traffic.read;
    looks_ = 0;
  } else {
    ++looks_;
  }
  last_ = traffic;
  return looks_ >= kLooks && now_ns - since_ns_ >= kPatienceNs &&
         traffic.read - read_then_ >= kMuch;
}

void ConnectionWatch::Add(int descriptor) {
  if (const uint64_t cookie = CookieOf(descriptor); cookie != 0) {
    connections_[descriptor] = {cookie, TrafficJudge()};
  }
}

int ConnectionWatch::CutFloods(int64_t now_ns) {
  int cut = 0;
  auto next = connections_.lower_bound(next_);
  for (int i = 0; i < kAtATime && next != connections_.end(); ++i) {
    auto& [descriptor, connection] = *next;
    const std::optional<ConnectionTraffic> traffic = TrafficOf(descriptor);
    bool gone = !traffic.has_value() || CookieOf(descriptor) != connection.cookie;
    if (!gone && connection.judge.IsFlood(*traffic, now_ns)) {
      cut += Cut(descriptor, connection.cookie) ? 1 : 0;
      gone = true;
    }
    next = gone ? connections_.erase(next) : std::next(next);
  }
  next_ = next == connections_.end() ? 0 : next->first;
  return cut;
}

}  // namespace tlm
