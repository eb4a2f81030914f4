#include "server/net/connection_watch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>
#include <optional>
#include <utility>

namespace tlm {
namespace {

constexpr int kEstablished = 1;  // TCP_ESTABLISHED of the kernel's headers, which clash with libc's

bool GetInfo(int descriptor, tcp_info& info) {
  socklen_t size = sizeof(info);
  return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
}

std::optional<ConnectionTraffic> TrafficOf(int descriptor) {
  tcp_info info{};
  if (!GetInfo(descriptor, info)) return std::nullopt;
  int unread = 0;
  int unacknowledged = 0;
  if (ioctl(descriptor, FIONREAD, &unread) != 0 ||
      ioctl(descriptor, SIOCOUTQ, &unacknowledged) != 0) {
    return std::nullopt;
  }
  return ConnectionTraffic{info.tcpi_bytes_received - static_cast<uint64_t>(unread),
                           info.tcpi_bytes_acked + static_cast<uint64_t>(unacknowledged)};
}

}  // namespace

std::string Peer::Name() const {
  if (address.empty()) return {};
  const bool ipv6 = address.size() == sizeof(in6_addr);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(ipv6 ? AF_INET6 : AF_INET, address.data(), text, sizeof(text));
  return fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), text, port);
}

Peer PeerOf(int descriptor) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (peer.ss_family == AF_INET) {
    const auto& at = reinterpret_cast<const sockaddr_in&>(peer);
    return {{reinterpret_cast<const char*>(&at.sin_addr), sizeof(in_addr)}, ntohs(at.sin_port)};
  }
  if (peer.ss_family != AF_INET6) return {};
  const auto& at = reinterpret_cast<const sockaddr_in6&>(peer);
  std::string address(reinterpret_cast<const char*>(&at.sin6_addr), sizeof(in6_addr));
  if (IN6_IS_ADDR_V4MAPPED(&at.sin6_addr)) address.erase(0, sizeof(in6_addr) - sizeof(in_addr));
  return {std::move(address), ntohs(at.sin6_port)};
}

uint64_t SocketCookie(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

bool IsClosedByPeer(int descriptor) {
  tcp_info info{};
  return GetInfo(descriptor, info) && info.tcpi_state != kEstablished;
}

bool CutConnection(int descriptor, uint64_t cookie) {
  // A duplicate, which gRPC cannot close and reuse meanwhile.
  const int own = dup(descriptor);
  if (own < 0) return false;
  const bool same = SocketCookie(own) == cookie;
  if (same) {
    syscall(SYS_shutdown, own, SHUT_RDWR);  // at once, without LingeringClose
    // Drops bytes that have arrived: gRPC would still read them, which may be much work.
    char unread[4096];
    while (recv(own, unread, sizeof(unread), MSG_DONTWAIT | MSG_TRUNC) > 0) {
    }
  }
  close(own);
  return same;
}

bool FloodDetector::IsFlood(const ConnectionTraffic& traffic, int64_t now_ns) {
  const Episode starts_now{now_ns, traffic.read, 0};
  const bool reads_on = traffic.read != last_.read;
  if (unwritten_.since_ns < 0 || traffic.written != last_.written) {
    continuous_ = unwritten_ = starts_now;
  } else if (!reads_on) {
    continuous_ = starts_now;
  } else {
    ++continuous_.polls;
    ++unwritten_.polls;
  }
  last_ = traffic;
  return reads_on && (continuous_.IsFlood(traffic, now_ns, kContinuousNs) ||
                      unwritten_.IsFlood(traffic, now_ns, kIntermittentNs));
}

bool FloodDetector::Episode::IsFlood(const ConnectionTraffic& traffic, int64_t now_ns,
                                     int64_t least_ns) const {
  return polls >= kPolls && now_ns - since_ns >= least_ns &&
         traffic.read - read_then >= kFloodBytes;
}

void ConnectionWatch::Add(int descriptor) {
  if (const uint64_t cookie = SocketCookie(descriptor); cookie != 0) {
    connections_[descriptor] = {cookie, FloodDetector()};
  }
}

int ConnectionWatch::CutFloods(int64_t now_ns) {
  int cut = 0;
  auto next = connections_.lower_bound(next_);
  for (int i = 0; i < kAtATime && next != connections_.end(); ++i) {
    auto& [descriptor, connection] = *next;
    const std::optional<ConnectionTraffic> traffic = TrafficOf(descriptor);
    bool gone = !traffic.has_value() || SocketCookie(descriptor) != connection.cookie;
    if (!gone && connection.detector.IsFlood(*traffic, now_ns)) {
      cut += CutConnection(descriptor, connection.cookie) ? 1 : 0;
      gone = true;
    }
    next = gone ? connections_.erase(next) : std::next(next);
  }
  next_ = next == connections_.end() ? 0 : next->first;
  return cut;
}

void ConnectionWatch::CutAll() {
  for (const auto& [descriptor, connection] : connections_) {
    CutConnection(descriptor, connection.cookie);
  }
  connections_.clear();
}

}  // namespace tlm
