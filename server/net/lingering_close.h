// Closes a connection without losing what was sent last. gRPC 1.51 closes the socket as soon as the
// last call of a connection ends that it has announced the end of (GOAWAY). What the client sends
// at that moment, a window update for instance, then meets a closed socket; HAProxy 2.6 takes the
// error for the end of the response and drops trailers that it has received and not forwarded yet.
#ifndef TLM_SERVER_NET_LINGERING_CLOSE_H_
#define TLM_SERVER_NET_LINGERING_CLOSE_H_

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "model/base/mutex.h"

namespace tlm {

// Sockets that have sent their end and stay open until the client closes, too. Thread-safe.
class LingeringClose {
 public:
  using Clock = std::chrono::steady_clock;
  // Limits of one socket, after which it is closed in any case.
  static constexpr std::chrono::milliseconds kMaxTime{1000};
  static constexpr size_t kMaxBytes = size_t{256} << 10;  // received and dropped
  // Sockets at a time; a further one is closed at once.
  static constexpr size_t kMaxSockets = 256;

  // The instance that shutdown() of this process uses. Never destroyed.
  static LingeringClose& OfProcess();
  explicit LingeringClose(std::chrono::milliseconds max_time = kMaxTime);
  // Closes the sockets that linger.
  ~LingeringClose();
  LingeringClose(const LingeringClose&) = delete;
  LingeringClose& operator=(const LingeringClose&) = delete;

  // From now on Begin() applies to this connected socket, until the descriptor is another socket's.
  void Add(int descriptor);
  // The epoll set `set` watches the descriptor: Begin() takes it out, as a close would.
  void NoteWatched(int set, int descriptor);
  // Sends the end of the connection and keeps the socket open by a descriptor of its own, so that
  // the caller may close his. False if the socket was not added and watched, the client has closed
  // already, or too many sockets linger: nothing was done then.
  bool Begin(int descriptor);
  // Returns when no socket lingers, after `max_time` at the latest.
  void AwaitAll();

 private:
  struct Added {
    uint64_t cookie = 0;
    int epoll_set = -1;
  };
  struct Socket {
    int descriptor = -1;
    Clock::time_point deadline;
    size_t received = 0;  // bytes
  };

  void Run();
  // Drops what has come; whether the socket is to be closed.
  static bool IsOver(Socket& socket, Clock::time_point now);

  const std::chrono::milliseconds max_time_;
  const int wake_;  // eventfd
  Mutex mutex_;
  CondVar none_left_;
  std::map<int, Added> added_ TLM_GUARDED_BY(mutex_);  // by descriptor
  std::vector<Socket> sockets_ TLM_GUARDED_BY(mutex_);
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_LINGERING_CLOSE_H_
