// Closes connections so that clients receive everything that was sent. After GOAWAY, gRPC 1.51
// closes the socket as soon as the connection's last call ends. If the client sends something at
// that moment, such as a window update, it meets a closed socket. HAProxy 2.6 takes this error for
// the end of the response, and drops trailers that it has received and not forwarded.
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

// Keeps sockets open after their last byte was sent, until the client closes, too. Thread-safe.
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

  // Makes Begin() apply to this connected socket, until the descriptor belongs to another socket.
  void Add(int descriptor);
  // Notes that the epoll set `set` watches the descriptor. Begin() removes it from the set, as a
  // close would.
  void NoteWatched(int set, int descriptor);
  // Ends the connection's output and keeps the socket open through a duplicate descriptor; the
  // caller may close the original. Returns false and does nothing if the socket was not added or
  // is not watched, the client has closed already, or kMaxSockets linger.
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
  // Drops the bytes that have arrived. Returns whether the socket must be closed.
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
