// Watches the connections of the HTTP server for what libmicrohttpd does not see.
#ifndef TLM_CLIENT_OPENAI_HTTP_CONNECTION_TABLE_H_
#define TLM_CLIENT_OPENAI_HTTP_CONNECTION_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "client/openai/http/exchange.h"

namespace tlm::openai {

// libmicrohttpd does not poll suspended connections, and resets its timeout with every byte. This
// table notices that a client closed a connection while its exchange waits for results, and closes
// connections whose requests arrive too slowly. Thread-safe.
class ConnectionTable {
 public:
  ConnectionTable();
  ~ConnectionTable();
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // Adds a socket; it is shut down at the deadline. Returns its id, which is never 0. Remove must
  // be called before the socket is closed.
  uint64_t Add(int socket, absl::Time deadline);
  void Remove(uint64_t id);
  size_t size() const;

  // By absl::Now(); infinite = none.
  void SetDeadline(uint64_t id, absl::Time deadline);
  // Calls exchange->OnGone() when the client closes its side, until Unwatch.
  void Watch(uint64_t id, const std::shared_ptr<Exchange>& exchange);
  void Unwatch(uint64_t id);

  // Shuts all sockets down.
  void ShutDownAll();

 private:
  struct Connection {
    int socket;
    absl::Time deadline;
    std::weak_ptr<Exchange> exchange;
    bool watched = false;
  };

  void Run();
  void ShutDownExpired();
  void OnClosed(uint64_t id);

  const int epoll_;
  const int wake_;  // an eventfd: the thread ends
  mutable std::mutex mutex_;
  std::map<uint64_t, Connection> connections_;  // guarded by mutex_
  uint64_t next_ = 1;                           // guarded by mutex_
  std::thread thread_;
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_HTTP_CONNECTION_TABLE_H_
