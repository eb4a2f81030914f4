// Prevents gRPC 1.51 from reading more than it can process. Streams that are opened and reset
// (CVE-2023-44487) cost it about 20 KiB and 30 us each, for 28 bytes on the wire, and it reads as
// long as there is something to read. Obsolete from gRPC 1.60 on, which stops after 32 requests per
// read.
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

// Decides how much may be read from each connection. All connections share a budget of bytes per
// round; when it is used up, they wait until the round ends, that is, until gRPC's threads have
// processed what they had read and are idle. The longer rounds take, the smaller the budget. Peer
// addresses take turns, and so do the connections of each. Thread-safe.
class ReadBudget {
 public:
  using Duration = std::chrono::nanoseconds;

  // Bytes of a round over all connections: 128 KiB of resets are 4,700 calls.
  static constexpr size_t kMaxBytes = size_t{128} << 10;
  static constexpr size_t kMinBytes = size_t{16} << 10;
  static constexpr size_t kMinShare = 512;
  static constexpr size_t kUnbounded = SIZE_MAX;
  static constexpr size_t kEnded = SIZE_MAX - 1;
  // Rounds longer than kSlowRound halve the budget; rounds shorter than kFastRound double it.
  static constexpr Duration kSlowRound = std::chrono::milliseconds(20);
  static constexpr Duration kFastRound = std::chrono::milliseconds(5);

  // `cookie_of` distinguishes connections that used the same descriptor one after the other.
  explicit ReadBudget(std::function<uint64_t(int descriptor)> cookie_of)
      : cookie_of_(std::move(cookie_of)) {}

  // Adds a connection, in place of an earlier one with that descriptor. Connections with equal
  // `peer` share one turn.
  void Add(int descriptor, const std::string& peer);

  // Stops all reads from this connection, whatever has arrived; EndRound() does the same for
  // connections that it found closed. Does nothing if the descriptor belongs to another connection
  // by now.
  void Cut(int descriptor, uint64_t cookie);

  // Returns the bytes that may be read from it now. 0: none, and a later EndRound() returns it.
  // kEnded: it was cut. kUnbounded: the descriptor was not added.
  size_t Allowance(int descriptor);
  void NoteRead(int descriptor, size_t bytes);

  // Returns the number of open connections from which gRPC has not tried to read yet.
  size_t Unread();

  // Waits until a connection waits, at most `timeout`; returns whether one does.
  bool AwaitWaiting(Duration timeout);
  // Ends a round of length `round` and begins the next, with a budget of at most max(`most_bytes`,
  // kMinBytes). Returns the connections that begin it; these wait no more. Waiting connections for
  // which `is_over` holds get no turn: they are cut, and added to `over` with their cookies.
  std::vector<int> EndRound(Duration round, size_t most_bytes,
                            const std::function<bool(int descriptor)>& is_over,
                            std::vector<std::pair<int, uint64_t>>& over);

 private:
  enum class State { kUnknown, kUnread, kRead, kCut };

  struct Connection {
    State state = State::kUnknown;
    uint64_t cookie = 0;
    bool waits = false;
    bool chosen = false;  // chosen for this round: others cannot take its share
    uint64_t round = 0;   // the last round in which it was read
    size_t read = 0;      // bytes in that round
    std::string peer;
  };

  // Returns null unless it was added and not cut.
  Connection* Find(int descriptor) TLM_REQUIRES(mutex_);
  // Resets the connection to that state.
  void Reset(int descriptor, Connection& connection, State state) TLM_REQUIRES(mutex_);
  bool HasEnded(int descriptor) const TLM_REQUIRES(mutex_);
  // Removes and returns the next connection of the peer whose turn it is.
  int TakeWaiting() TLM_REQUIRES(mutex_);

  const std::function<uint64_t(int)> cookie_of_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Connection> connections_ TLM_GUARDED_BY(mutex_);             // by descriptor
  std::map<std::string, std::deque<int>> waiting_ TLM_GUARDED_BY(mutex_);  // by peer
  std::string last_peer_ TLM_GUARDED_BY(mutex_);                           // had the last turn
  size_t unread_ TLM_GUARDED_BY(mutex_) = 0;                               // number of connections
  uint64_t round_ TLM_GUARDED_BY(mutex_) = 1;
  size_t next_budget_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;  // adapted to how long rounds take
  size_t budget_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;       // bytes of this round
  size_t share_ TLM_GUARDED_BY(mutex_) = kMaxBytes / 2;        // bytes of one connection
  size_t read_ TLM_GUARDED_BY(mutex_) = 0;                     // bytes in this round
};

// The ReadBudget of this process, which limits every recvmsg() of an added connection. At the end
// of every round it also enforces the StreamLimit of this process.
class ReadThrottle {
 public:
  // The first call makes it; it is never destroyed. Thread-safe.
  static ReadThrottle& OfProcess();

  // `descriptor` is a socket that is about to be passed to gRPC, and may have `max_streams` calls.
  void Add(int descriptor, int64_t max_streams);
  // Returns whether so many connections wait for gRPC's first read that it should get no more now:
  // they would wait there, and the work of all other connections after them.
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
  size_t cut_ = 0;  // since the last log line; used by the thread only
  std::chrono::steady_clock::time_point next_report_;  // used by the thread only
  std::thread thread_;                                 // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_READ_THROTTLE_H_
