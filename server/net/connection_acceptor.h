// Accepts the connections of a port for a gRPC server: gRPC 1.51 itself never accepts again after
// it has once run out of file descriptors.
#ifndef TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_
#define TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "server/net/connection_watch.h"
#include "server/net/listening_sockets.h"

namespace tlm {

// The most descriptors that may be open when a connection is accepted: for `max_connections` and
// the server itself, at most the limit of the system (RLIMIT_NOFILE). `extra` is a reserve for
// ports that must answer when others are full.
int64_t DescriptorBudget(int64_t max_connections, int64_t extra);

// Thread-safe.
class ConnectionAcceptor {
 public:
  using Server = grpc::experimental::ExternalConnectionAcceptor;

  // Hands every connection of `sockets`, which listen, to `server`, on a thread of its own; closes
  // those over the budget at once, with a log line at most every 10 s. A connection may have
  // `max_streams` calls.
  ConnectionAcceptor(ListeningSockets sockets, std::unique_ptr<Server> server,
                     int64_t descriptor_budget, int64_t max_streams);
  // Stop()s.
  ~ConnectionAcceptor();

  int port() const { return port_; }

  // As ListeningSockets'.
  void StopAcceptingSyn() { sockets_.StopAcceptingSyn(); }
  // Hands over the established connections and closes the port: the system refuses later ones.
  // Returns when that is done. Idempotent; not from two threads at once.
  void Stop();
  // Ends all connections. After Stop().
  void CutConnections() { watch_.CutAll(); }

 private:
  void Run();
  // Milliseconds to pause before more are accepted, one at least each time. Before the port closes
  // what was established is handed over without pauses.
  int AcceptAll(int listener, bool stopping);
  void Take(int listener, int connection);
  void NoteRefused(const char* why);
  void PollConnections();
  void Pause(int ms);

  ListeningSockets sockets_;
  const int port_;
  const std::unique_ptr<Server> server_;
  const int64_t budget_;
  const int64_t max_streams_;
  const int stop_event_;        // becomes readable
  int64_t refused_ = 0;         // since the last line in the log; the thread's
  int64_t next_report_ns_ = 0;  // of the steady clock; the thread's
  ConnectionWatch watch_;       // the thread's, while it runs
  int64_t next_poll_ns_ = 0;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_
