// Limits the open streams of all connections together. gRPC 1.51 enforces its limit per connection
// only once the client has acknowledged it.
#ifndef TLM_SERVER_NET_STREAM_LIMIT_H_
#define TLM_SERVER_NET_STREAM_LIMIT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/mutex.h"

namespace tlm {

struct StreamCounts {
  int64_t open = 0;      // streams that take memory, recently reset ones included
  int64_t started = 0;   // since the connection began
  int64_t messages = 0;  // received completely, since the connection began

  // Returns an upper bound of the open streams whose message has not arrived.
  int64_t half_open() const { return open < started - messages ? open : started - messages; }
};

// Counts the streams of connections.
class StreamCounter {
 public:
  virtual ~StreamCounter() = default;
  // Returns the id of the connection with `peer` (Peer::Name); nullopt if there is none yet, or no
  // longer.
  virtual std::optional<int64_t> Find(const std::string& peer) = 0;
  // Returns nullopt for a connection that is gone completely.
  virtual std::optional<StreamCounts> Count(int64_t id) = 0;
};

// Counts gRPC's connections by channelz, whose ids it uses. A count takes about 20 us.
class ChannelzCounter final : public StreamCounter {
 public:
  std::optional<int64_t> Find(const std::string& peer) override;
  std::optional<StreamCounts> Count(int64_t id) override;

 private:
  static constexpr size_t kMaxKnown = 65536;
  void FindNewSockets();

  std::map<std::string, int64_t> sockets_;  // ids by peer
  std::map<int64_t, int64_t> next_socket_;  // per server: least id not looked at
};

// Thread-safe, but only one call to Enforce may run at a time.
class StreamLimit {
 public:
  // The limit for all connections together, at 12 to 20 KiB per stream. Above it, the connections
  // with the most streams are cut.
  static constexpr int64_t kMaxStreams = 10240;
  // A connection exceeds its own limit by more than this only while it resets streams.
  static constexpr int64_t kSpareStreams = 256;
  // The most bytes read from a connection while no call began and no message arrived: more is a
  // flood of other frames. Eight of the largest messages at once take as many.
  static constexpr int64_t kMaxIdleBytes = int64_t{64} << 20;
  // The fewest bytes that begin a stream: the head of a HEADERS frame.
  static constexpr int64_t kMinBytes = 9;

  explicit StreamLimit(std::unique_ptr<StreamCounter> counter) : counter_(std::move(counter)) {}

  // Adds a connection that may have `max_streams`, in place of an earlier one with that descriptor.
  void Add(int descriptor, int64_t max_streams);
  // Records that `bytes` were read from it.
  void NoteRead(int descriptor, size_t bytes);
  // Counts streams, if the bytes read allow too many. Returns the connections to cut, by descriptor
  // and cookie, and forgets them, except for the streams that they still have until these end.
  std::vector<std::pair<int, uint64_t>> Enforce();
  // Returns the bytes that may be read before there can be too many streams, streams of cut
  // connections included. 0: there are too many now.
  size_t RoomBytes();

 private:
  struct Connection {
    uint64_t cookie = 0;  // the socket's cookie
    int64_t max_streams = 0;
    std::string peer;
    std::optional<int64_t> id;    // the counter's, once it was counted
    int64_t uncounted_bytes = 0;  // read since its streams were counted
    int64_t idle_bytes = 0;       // counted bytes since its last call or message
    StreamCounts streams;

    int64_t AtMost() const { return streams.open + uncounted_bytes / kMinBytes; }
  };
  using Connections = std::map<int, Connection>;  // by descriptor

  // Returns the most open streams that there can be, given the bytes read.
  int64_t AtMost() const TLM_REQUIRES(mutex_) { return streams_ + uncounted_bytes_ / kMinBytes; }
  bool MayExceed(int64_t streams);
  void CountEnding();
  // Returns copies of the connections that may have streams, most streams first.
  std::vector<std::pair<int, Connection>> Candidates();
  Connections::iterator WithMostStreams() TLM_REQUIRES(mutex_);
  std::pair<int, uint64_t> Remove(Connections::iterator connection) TLM_REQUIRES(mutex_);
  // Counts the streams of `seen`, a copy. Returns whether to cut the connection: it has too many
  // streams, its client is gone, or it floods.
  bool CountOne(int descriptor, Connection& seen);
  void Take(Connection& connection, const Connection& seen) TLM_REQUIRES(mutex_);

  const std::unique_ptr<StreamCounter> counter_;  // used by Enforce
  Mutex mutex_;
  Connections connections_ TLM_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> ending_ TLM_GUARDED_BY(mutex_);  // streams of closed ones, by id
  int64_t streams_ TLM_GUARDED_BY(mutex_) = 0;                // open, as counted
  int64_t uncounted_bytes_ TLM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_STREAM_LIMIT_H_
