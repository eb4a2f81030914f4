// Keeps gRPC 1.51 from reading more than it can process: streams that are opened and reset
// (CVE-2023-44487) cost it about 20 KiB and 30 us each, against 28 bytes on the wire, and it reads
// as long as there is something to read. Obsolete from gRPC 1.60 on, which stops after 32 requests
// of one read.
#ifndef TLM_SERVER_NET_READ_THROTTLE_H_
#define TLM_SERVER_NET_READ_THROTTLE_H_

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/mutex.h"
#include "server/net/stream_limit.h"

namespace tlm {

// Decides how much may be read from which connection. All connections share a budget of bytes; once
// it is used up, they wait until the round is over, that is, until gRPC's threads have processed
// what they had read and are idle. The longer rounds take, the smaller the budget. Peer addresses
// take turns, and so do the connections of each. Thread-safe.
class ReadBudget {
 public:
  using Duration = std::chrono::nanoseconds;

  // Of a round, in bytes, over all connections: 128 KiB of resets are 4,700 calls.
  static constexpr size_t kMaxBytes = size_t{128} << 10;
  static constexpr size_t kMinBytes = size_t{16} << 10;
  static constexpr size_t kMinShare = 512;
  static constexpr size_t kUnbounded = SIZE_MAX;
  static constexpr size_t kEnded = SIZE_MAX - 1;
  // Rounds longer than this halve the budget, those shorter than the other double it.
  static constexpr Duration kSlowRound = std::chrono::milliseconds(20);
  static constexpr Duration kFastRound = std::chrono::milliseconds(5);

  // `cookie_of` tells connections apart that had one descriptor after the other.
  explicit ReadBudget(std::function<uint64_t(int descriptor)> cookie_of)
      : cookie_of_(std::move(cookie_of)) {}

  // A connection, in place of an earlier one with that descriptor. Connections with equal `peer`
  // share one turn.
  void Add(int descriptor, const std::string& peer);

  // Nothing more is read of this connection, whatever has come, nor of one that EndRound() found
  // to be over. Does nothing if the descriptor is another connection's by now.
  void Cut(int descriptor, uint64_t cookie);

  // Bytes that may be read of it now. 0: none, and a later EndRound() names it. kEnded: it was cut.
  // kUnbounded: the descriptor was not added.
  size_t Allowance(int descriptor);
  void NoteRead(int descriptor, size_t bytes);

  // Open connections of which no read was tried yet: gRPC has not come to them.
  size_t Unread();

  // Until a connection waits, at most for `timeout`. Whether one does.
  bool AwaitWaiting(Duration timeout);
  // Ends the round, which lasted so long. The next one, of `most_bytes` or kMinBytes at the most,
  // begins with the connections that are returned, which wait no more. Those that wait and for
  // which `is_over` take no turn: they are cut, and added to `over` with their cookies.
  std::vector<int> EndRound(Duration round, size_t most_bytes,
                            const std::function<bool(int descriptor)>& is_over,
                            std::vector<std::pair<int, uint64_t>>& over);

 private:
  enum class State { kUnknown, kUnread, kRead, kCut };

  struct Connection {
    State state = State::kUnknown;
    uint64_t cookie = 0;
    bool waits = false;
    bool chosen = false;  // for this round: others cannot take its share
    uint64_t round = 0;   // in which it was read
    size_t read = 0;      // bytes, in that round
    std::string peer;
  };

  // Null unless it was added and not cut.
  Connection* Find(int descriptor) TLM_REQUIRES(mutex_);
  // Begins anew with that state.
  void Reset(int descriptor, Connection& connection, State state) TLM_REQUIRES(mutex_);
  bool HasEnded(int descriptor) const TLM_REQUIRES(mutex_);
  // Of the peer whose turn it is.
  int TakeWaiting() TLM_REQUIRES(mutex_);

  const std::function<uint64_t(int)> cookie_of_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Connection> connections_ TLM_GUARDED_BY(mutex_);             // by descriptor
  std::map<std::string, std::deque<int>> waiting_ TLM_GUARDED_BY(mutex_);  // by peer
  std::string last_peer_ TLM_GUARDED_BY(mutex_);                           // whose turn it was
  size_t unread_ TLM_GUARDED_BY(mutex_) = 0;                               // connections
  uint64_t round_ TLM_GUARDED_BY(mutex_) = 1;
  size_t next_budget_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;  // by how long rounds take
  size_t budget_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;       // of this round
  size_t share_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;        // of a connection
  size_t read_ TLM_GUARDED_BY(mutex_) = 0;                     // in this round
};

// The ReadBudget of this process, which every recvmsg() of a connection that was added keeps to.
// At the end of every round it enforces the StreamLimit of this process, too.
class ReadThrottle {
 public:
  // Made by the first call, and never destroyed. Thread-safe.
  static ReadThrottle& OfProcess();

  // `descriptor` is a socket that is about to be handed to gRPC, and may have `max_streams` calls.
  void Add(int descriptor, int64_t max_streams);
  // Whether gRPC has yet to come to so many connections that it should not be given more: they
  // would wait there, and the work of all others behind them.
  bool IsFull() { return budget_.Unread() >= kMaxUnread; }

 private:
  static constexpr size_t kMaxUnread = 16;
  friend ssize_t ::recvmsg(int descriptor, msghdr* message, int flags);
  ReadThrottle();
  ssize_t Receive(int descriptor, msghdr* message, int flags);
  void Run();
  void CutConnections();
  void BeginRound(ReadBudget::Duration last_round);

  ReadBudget budget_;
  StreamLimit streams_;
  size_t cut_ = 0;  // since the last line in the log; the thread's
  std::chrono::steady_clock::time_point next_report_;  // the thread's
  std::thread thread_;                                 // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_READ_THROTTLE_H_
