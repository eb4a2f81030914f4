// Accepts a port's connections for a gRPC server: once gRPC 1.51 has run out of file descriptors,
// it never accepts again by itself.
#ifndef TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_
#define TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "server/net/connection_watch.h"
#include "server/net/listening_sockets.h"

namespace tlm {

// Returns the most descriptors that may be open when a connection is accepted: enough for
// `max_connections` and the server itself, at most the system's limit (RLIMIT_NOFILE). `extra` is a
// reserve for ports that must answer when others are full.
int64_t DescriptorBudget(int64_t max_connections, int64_t extra);

// Thread-safe.
class ConnectionAcceptor {
 public:
  using Server = grpc::experimental::ExternalConnectionAcceptor;

  // Passes every connection of `sockets`, which listen, to `server`, on its own thread. Closes
  // connections over the budget at once, with a log line at most every 10 s. A connection may have
  // `max_streams` calls.
  ConnectionAcceptor(ListeningSockets sockets, std::unique_ptr<Server> server,
                     int64_t descriptor_budget, int64_t max_streams);
  // Stop()s.
  ~ConnectionAcceptor();

  int port() const { return port_; }

  // Calls ListeningSockets::StopAcceptingSyn.
  void StopAcceptingSyn() { sockets_.StopAcceptingSyn(); }
  // Passes on the established connections and closes the port: the system refuses later ones.
  // Returns when that is done. Idempotent. Do not call it from two threads at once.
  void Stop();
  // Ends all connections. Call after Stop().
  void CutConnections() { watch_.CutAll(); }

 private:
  void Run();
  // Returns the milliseconds to pause before the next accept; accepts at least one connection each
  // time, if there is one. Before the port closes, established connections are passed on without
  // pauses.
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
  const int stop_event_;        // readable when Stop() was called
  int64_t refused_ = 0;         // since the last log line; used by the thread only
  int64_t next_report_ns_ = 0;  // steady clock's time; used by the thread only
  ConnectionWatch watch_;       // used by the thread while it runs
  int64_t next_poll_ns_ = 0;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_CONNECTION_ACCEPTOR_H_
