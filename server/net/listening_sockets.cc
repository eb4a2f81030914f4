#include "server/net/listening_sockets.h"

#include <linux/filter.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include "model/base/errors.h"

namespace tlm {
namespace {

// The most connections that the system lets wait to be accepted.
constexpr int kBacklog = 65535;
// A peer that acknowledges nothing for this long is gone.
constexpr int kUserTimeoutMs = 20'000;
// How often a free port of the first address may turn out to be taken on another one.
constexpr int kAttempts = 16;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const std::string& host, int port, const char* reason) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return FailedPrecondition("cannot listen on {}{}{}:{}: {}", ipv6 ? "[" : "", host,
                            ipv6 ? "]" : "", port, reason);
}

absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return CannotListen(host, port, gai_strerror(error));
  }
  return Addresses(found, freeaddrinfo);
}

void SetPort(sockaddr_storage& address, int port) {
  const in_port_t network_order = htons(static_cast<in_port_t>(port));
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = network_order;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = network_order;
  }
}

int PortOf(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void Set(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

// Returns the descriptor, or -1 and errno. Accepted connections inherit the options.
int Bind(const addrinfo& at, int port) {
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  SetPort(address, port);
  const int descriptor = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  // Recently closed connections must not keep a server from starting again.
  Set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.ai_family == AF_INET6) Set(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  Set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), at.ai_addrlen) == 0) {
    // Until Listen(), a second server could share a port whose socket has SO_REUSEADDR.
    Set(descriptor, SOL_SOCKET, SO_REUSEADDR, 0);
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

// A name may resolve to addresses of a family that this machine does not have.
bool NotOfThisMachine(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& host, int port) {
  TLM_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port));
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ListeningSockets sockets(host, port);
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      const int descriptor = Bind(*at, sockets.port_);
      if (descriptor >= 0) {
        sockets.descriptors_.push_back(descriptor);
        if (sockets.port_ == 0) sockets.port_ = PortOf(descriptor);
        continue;
      }
      error = errno;
      if (NotOfThisMachine(error)) continue;
      sockets.Close();
      break;
    }
    if (!sockets.descriptors_.empty()) return sockets;
    if (port != 0 || error != EADDRINUSE) break;
  }
  return CannotListen(host, port, std::strerror(error));
}

absl::Status ListeningSockets::Listen() {
  for (const int descriptor : descriptors_) {
    Set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    if (listen(descriptor, kBacklog) != 0) return CannotListen(host_, port_, std::strerror(errno));
  }
  return absl::OkStatus();
}

void ListeningSockets::StopAcceptingSyn() {
  // Drops packets whose byte 13 of the TCP header has the flag SYN.
  constexpr uint32_t kFlagsByte = 13;
  constexpr uint32_t kSyn = 0x02;
  constexpr uint32_t kWhole = 0xffffffff;
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlagsByte),
                           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kSyn, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, kWhole)};
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  for (const int descriptor : descriptors_) {
    setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
  }
}

void ListeningSockets::Close() {
  for (const int descriptor : descriptors_) close(descriptor);
  descriptors_.clear();
}

}  // namespace tlm
