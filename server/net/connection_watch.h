// Finds connections that flood the server, and cuts them.
#ifndef TLM_SERVER_NET_CONNECTION_WATCH_H_
#define TLM_SERVER_NET_CONNECTION_WATCH_H_

#include <cstdint>
#include <map>
#include <string>

namespace tlm {

// The bytes that the server has read from a connection and written to it. Written bytes count when
// the kernel takes them, so a slow reader does not change them.
struct ConnectionTraffic {
  uint64_t read = 0;
  uint64_t written = 0;
};

// Detects a flood by polling the traffic of one connection. gRPC 1.51 reads as long as there is
// something to read and does nothing else for that connection. Streams that are opened and reset
// faster than it reads (CVE-2023-44487) accumulate without limit, about 20 KiB each, and every
// frame of a header that never ends copies the whole header (CVE-2023-33953). Legitimate clients
// differ: their headers are short, and their uploads wait for window updates, at least one per MiB.
class FloodDetector {
 public:
  static constexpr int64_t kContinuousNs = 400'000'000;
  // For floods with pauses, from a slow network or from an attacker that evades kContinuousNs.
  static constexpr int64_t kIntermittentNs = 2'000'000'000;
  static constexpr int kPolls = 4;
  static constexpr uint64_t kFloodBytes = uint64_t{1280} << 10;

  // Returns true if, since the server last wrote, it has read kFloodBytes in at least kPolls polls:
  // either for kContinuousNs with more bytes at every poll, or for kIntermittentNs with more bytes
  // at some polls, including the one at `now_ns`.
  bool IsFlood(const ConnectionTraffic& traffic, int64_t now_ns);

 private:
  // A period that counts the polls at which the server had read more.
  struct Episode {
    int64_t since_ns = -1;
    uint64_t read_then = 0;
    int polls = 0;

    bool IsFlood(const ConnectionTraffic& traffic, int64_t now_ns, int64_t least_ns) const;
  };

  Episode continuous_;  // reads without a pause
  Episode unwritten_;   // writes nothing
  ConnectionTraffic last_;
};

// The other end of a connected TCP socket. An IPv4-mapped IPv6 address counts as IPv4.
struct Peer {
  std::string address;  // 4 bytes of IPv4 or 16 of IPv6 in network order; empty: not connected
  int port = 0;

  // "127.0.0.1:50051" or "[::1]:50051"; empty when not connected.
  std::string Name() const;
  // Returns the address; for IPv6 its /64 network, which belongs to one subscriber.
  std::string Network() const { return address.size() == 16 ? address.substr(0, 8) : address; }
};
Peer PeerOf(int descriptor);

// Returns a number that identifies a socket forever, while descriptors are reused. 0: no longer a
// socket.
uint64_t SocketCookie(int descriptor);
// Returns whether the other end has closed the connection.
bool IsClosedByPeer(int descriptor);
// Ends the connection if the socket still has that cookie, and drops its unread bytes. Returns
// whether it did.
bool CutConnection(int descriptor, uint64_t cookie);

// Watches connections that gRPC owns and may close at any time. Not thread-safe.
class ConnectionWatch {
 public:
  void Add(int descriptor);
  bool empty() const { return connections_.empty(); }
  // Polls all connections, or the next kAtATime of many; cuts those that flood and returns how many
  // it cut.
  int CutFloods(int64_t now_ns);
  void CutAll();

 private:
  static constexpr int kAtATime = 2048;
  struct Connection {
    uint64_t cookie = 0;  // the socket's
    FloodDetector detector;
  };

  std::map<int, Connection> connections_;  // by descriptor
  int next_ = 0;                           // descriptor from which the next poll continues
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_CONNECTION_WATCH_H_
