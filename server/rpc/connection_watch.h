// Finds connections that keep the server from answering them.
#ifndef TLM_SERVER_RPC_CONNECTION_WATCH_H_
#define TLM_SERVER_RPC_CONNECTION_WATCH_H_

#include <cstdint>
#include <map>

namespace tlm {

// What the server has read of a connection and has sent on it, in bytes.
struct ConnectionTraffic {
  uint64_t read = 0;
  uint64_t sent = 0;
};

// Judges one connection by looks at it. gRPC 1.51 reads on as long as there is something to read,
// and does meanwhile nothing else for a connection: calls that are begun and reset faster than it
// reads (CVE-2023-44487) pile up at about 20 KiB each, without bound. Nothing honest looks like
// that: whoever uploads much must wait for window updates, about one in each round trip.
class TrafficJudge {
 public:
  static constexpr int64_t kPatienceNs = 400'000'000;
  static constexpr int kLooks = 4;
  static constexpr uint64_t kMuch = uint64_t{256} << 10;

  // Whether, at `now_ns`, the server has for kPatienceNs read on from look to look, kMuch in all,
  // and sent nothing.
  bool IsFlood(const ConnectionTraffic& traffic, int64_t now_ns);

 private:
  int64_t since_ns_ = -1;   // it reads and does not send; before the first look: -1
  uint64_t read_then_ = 0;  // at since_ns_
  int looks_ = 0;           // since then
  ConnectionTraffic last_;
};

// Watches connections that somebody else owns, and may close at any time. Not thread-safe.
class ConnectionWatch {
 public:
  void Add(int descriptor);
  bool empty() const { return connections_.empty(); }
  // Looks at all of them, or at the next kAtATime of many; cuts those that flood. Their number.
  int CutFloods(int64_t now_ns);

 private:
  static constexpr int kAtATime = 2048;
  struct Connection {
    uint64_t cookie = 0;  // the socket's: descriptors are used again
    TrafficJudge judge;
  };

  std::map<int, Connection> connections_;  // by descriptor
  int next_ = 0;                           // descriptor to go on with
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONNECTION_WATCH_H_
