// Implements the binding side of a PUB or ROUTER socket, with limits on its peers.
//
// libzmq's own PUB and XPUB store every subscription, match it byte by byte, and read all that have
// arrived before they send the next message; its ROUTER stores all frames of a message that never
// ends. So libzmq only moves the bytes here (ZMQ_STREAM), and ZmtpReader reads the frames.
#ifndef TLM_SERVER_KV_EVENTS_ZMTP_LISTENER_H_
#define TLM_SERVER_KV_EVENTS_ZMTP_LISTENER_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/kv_events/zmtp.h"

namespace tlm {

// A connection.
struct ZmtpPeer {
  ZmtpReader reader;
  bool ready = false;               // the handshake has ended
  bool ended = false;               // to be disconnected as soon as libzmq accepts that
  std::vector<std::string> frames;  // frames of this message, at most kMaxFrames
  std::set<size_t> subscriptions;   // for the owner's use; empty at first
};

// Use by one thread at a time.
class ZmtpListener {
 public:
  // Beyond this many peers, the oldest ones without subscriptions are disconnected.
  static constexpr size_t kMaxPeers = 1024;
  // Limit per message; later frames are dropped.
  static constexpr size_t kMaxFrames = 4;

  using Peers = std::map<std::string, ZmtpPeer>;
  using Handler = absl::FunctionRef<void(Peers::value_type&, std::span<const std::string>)>;
  enum class Sent {
    kYes,
    kFull,  // the peer has `high_water_mark` unread messages
    kGone,  // the peer has disconnected; libzmq may not report it to Receive()
  };

  // `socket_type`, "PUB" or "ROUTER", is announced to the peers.
  ZmtpListener(zmq::context_t& context, std::string_view socket_type, int high_water_mark);

  // Binds tcp://HOST:PORT or ipc://PATH. FAILED_PRECONDITION names an endpoint that cannot be
  // bound.
  absl::Status Bind(const std::string& endpoint);
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }
  // Readable when Receive() has work.
  void* handle() { return socket_.handle(); }

  // Reads at most `pieces` pieces of up to 8 KiB from the peers in turn; the rest waits, at most 64
  // KiB per peer in addition to the system's buffers. Calls the handler with the frames of each
  // message. Disconnects peers that break the protocol or its limits.
  void Receive(int pieces, Handler handle);

  Peers& peers() { return peers_; }
  // Shares the contents of `message`, which are encoded frames, without a copy.
  Sent Send(const std::string& peer, zmq::message_t& message);

 private:
  void Admit(const std::string& id);
  // If the peer's queue is full, libzmq refuses, and the peer stays among the peers.
  void Disconnect(Peers::iterator peer);
  absl::Status Read(Peers::value_type& peer, std::string_view piece, Handler handle);
  absl::Status Take(Peers::value_type& peer, const ZmtpFrame& frame, Handler handle);

  const std::string socket_type_;
  zmq::socket_t socket_;
  Peers peers_;  // by libzmq's connection number
};

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_ZMTP_LISTENER_H_
