// The side of a PUB or ROUTER socket that binds, for peers with bounds.
//
// libzmq's own PUB and XPUB keep every subscription, match it byte by byte, and read all that have
// arrived before they send the next message; its ROUTER keeps all frames of a message that does not
// end. So libzmq moves the bytes here (ZMQ_STREAM), and the frames are read by ZmtpReader.
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
  bool ended = false;               // disconnected as soon as libzmq takes the order
  std::vector<std::string> frames;  // of the message so far, at most kMaxFrames
  std::set<size_t> subscriptions;   // the owner's, empty at first
};

// One thread after the other.
class ZmtpListener {
 public:
  // Beyond that, the oldest peers without subscriptions are disconnected.
  static constexpr size_t kMaxPeers = 1024;
  // Of a message; further frames are not kept.
  static constexpr size_t kMaxFrames = 4;

  using Peers = std::map<std::string, ZmtpPeer>;
  using Handler = absl::FunctionRef<void(Peers::value_type&, std::span<const std::string>)>;
  enum class Sent {
    kYes,
    kFull,  // the peer has `high_water_mark` messages to read
    kGone,  // the peer has disconnected; libzmq may not tell Receive()
  };

  // `socket_type`, "PUB" or "ROUTER", is what the peers are told.
  ZmtpListener(zmq::context_t& context, std::string_view socket_type, int high_water_mark);

  // FAILED_PRECONDITION names an endpoint that cannot be bound. tcp://HOST:PORT or ipc://PATH.
  absl::Status Bind(const std::string& endpoint);
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }
  // Readable when Receive() has something to do.
  void* handle() { return socket_.handle(); }

  // Reads at most `pieces` pieces of up to 8 KiB from the peers in turn; the rest waits, at most
  // 64 KiB a peer beside the system's buffers. Calls the handler with the frames of each message.
  // Peers that break the protocol or its bounds are disconnected.
  void Receive(int pieces, Handler handle);

  Peers& peers() { return peers_; }
  // The contents of `message`, which are frames, are shared and not copied.
  Sent Send(const std::string& peer, zmq::message_t& message);

 private:
  void Admit(const std::string& id);
  // libzmq takes no order for a peer whose queue is full: then it stays among the peers.
  void Disconnect(Peers::iterator peer);
  absl::Status Read(Peers::value_type& peer, std::string_view piece, Handler handle);
  absl::Status Take(Peers::value_type& peer, const ZmtpFrame& frame, Handler handle);

  const std::string socket_type_;
  zmq::socket_t socket_;
  Peers peers_;  // by libzmq's number of the connection
};

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_ZMTP_LISTENER_H_
