// Finds connections that keep the server from answering them.
#ifndef TLM_SERVER_NET_CONNECTION_WATCH_H_
#define TLM_SERVER_NET_CONNECTION_WATCH_H_

#include <cstdint>
#include <map>
#include <string>

namespace tlm {

// What the server has read of a connection and has written to it, in bytes. Written is what it has
// handed to the kernel: that somebody reads slowly does not make it more.
struct ConnectionTraffic {
  uint64_t read = 0;
  uint64_t written = 0;
};

// Judges one connection by looks at it. gRPC 1.51 reads on as long as there is something to read,
// and does meanwhile nothing else for a connection: calls that are begun and reset faster than it
// reads (CVE-2023-44487) pile up at about 20 KiB each, without bound; and it copies a header that
// does not end anew with every frame of it (CVE-2023-33953). Nothing honest looks like that:
// headers are short, and whoever uploads much must wait for window updates, at least one in a MiB.
class FloodDetector {
 public:
  static constexpr int64_t kPatienceNs = 400'000'000;
  // For who makes pauses, as a slow network may, and an attacker who knows of the other one.
  static constexpr int64_t kLongPatienceNs = 2'000'000'000;
  static constexpr int kLooks = 4;
  static constexpr uint64_t kMuch = uint64_t{1280} << 10;

  // Whether, at `now_ns`, the server has read kMuch and written nothing since: for kPatienceNs in
  // which it read on from look to look, or for kLongPatienceNs in which it did so now and then, now
  // being one of them.
  bool IsFlood(const ConnectionTraffic& traffic, int64_t now_ns);

 private:
  // Looks at which the server had read on, from some time on.
  struct Stretch {
    int64_t since_ns = -1;
    uint64_t read_then = 0;
    int looks = 0;

    bool IsFlood(const ConnectionTraffic& traffic, int64_t now_ns, int64_t patience_ns) const;
  };

  Stretch unbroken_;   // it reads on without a pause
  Stretch unwritten_;  // it writes nothing
  ConnectionTraffic last_;
};

// The other end of a connected TCP socket. IPv4 in IPv6 is IPv4 here.
struct Peer {
  std::string address;  // 4 bytes of IPv4 or 16 of IPv6 in network order; empty: not connected
  int port = 0;

  // As `127.0.0.1:50051` or `[::1]:50051`; empty when not connected.
  std::string Name() const;
  // The address, of IPv6 the network of 64 bits that one subscriber has.
  std::string Network() const { return address.size() == 16 ? address.substr(0, 8) : address; }
};
Peer PeerOf(int descriptor);

// A socket's own number, which no other has: descriptors are used again. 0: not a socket any more.
uint64_t SocketCookie(int descriptor);
// Whether the other end has closed the connection.
bool IsClosedByPeer(int descriptor);
// Ends the connection, if the socket still has that cookie, and drops what came on it and was not
// read. Whether it did.
bool CutConnection(int descriptor, uint64_t cookie);

// Watches connections that somebody else owns, and may close at any time. Not thread-safe.
class ConnectionWatch {
 public:
  void Add(int descriptor);
  bool empty() const { return connections_.empty(); }
  // Looks at all of them, or at the next kAtATime of many; cuts those that flood. Their number.
  int CutFloods(int64_t now_ns);
  void CutAll();

 private:
  static constexpr int kAtATime = 2048;
  struct Connection {
    uint64_t cookie = 0;  // the socket's
    FloodDetector judge;
  };

  std::map<int, Connection> connections_;  // by descriptor
  int next_ = 0;                           // descriptor to go on with
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_CONNECTION_WATCH_H_
