#include "server/kv_events/zmtp_listener.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "model/base/descriptor.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr std::string_view kIpc = "ipc://";
// The most pieces of a peer that wait in libzmq.
constexpr int kWaitingPieces = 8;

// Checks the path, because libzmq removes any file with the name of a socket that it binds.
absl::Status CheckIpcPath(const std::string& path) {
  struct stat status {};
  if (path.starts_with('@') || lstat(path.c_str(), &status) != 0) return absl::OkStatus();
  if (!S_ISSOCK(status.st_mode)) return FailedPrecondition("the file exists and is no socket");
  const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::OkStatus();  // left by a process that is gone
  }
  return FailedPrecondition("another process listens there");
}

}  // namespace

ZmtpListener::ZmtpListener(zmq::context_t& context, std::string_view socket_type,
                           int high_water_mark)
    : socket_type_(socket_type), socket_(context, zmq::socket_type::stream) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.set(zmq::sockopt::sndhwm, high_water_mark);
  socket_.set(zmq::sockopt::rcvhwm, kWaitingPieces);
  socket_.set(zmq::sockopt::backlog, static_cast<int>(kMaxPeers));
}

absl::Status ZmtpListener::Bind(const std::string& endpoint) {
  absl::Status status;
  if (endpoint.starts_with(kIpc)) status = CheckIpcPath(endpoint.substr(kIpc.size()));
  if (status.ok()) {
    try {
      socket_.set(zmq::sockopt::ipv6, endpoint.find('[') != endpoint.npos);
      socket_.bind(endpoint);
      return status;
    } catch (const zmq::error_t& error) {
      status = FailedPrecondition("{}", error.what());
    }
  }
  return WithContext(status, fmt::format("cannot publish KV events on {}", endpoint));
}

// An empty piece means that a peer has connected or, if libzmq had room to say so, disconnected.
void ZmtpListener::Receive(int pieces, Handler handle) {
  zmq::message_t id;
  zmq::message_t piece;
  while (pieces-- > 0 && socket_.recv(id, zmq::recv_flags::dontwait).has_value() &&
         socket_.recv(piece, zmq::recv_flags::none).has_value()) {
    const auto peer = peers_.find(id.to_string());
    if (peer == peers_.end()) {
      if (piece.empty()) Admit(id.to_string());
    } else if (piece.empty()) {
      peers_.erase(peer);
    } else if (peer->second.ended) {
      Disconnect(peer);
    } else {
      const absl::Status read = Read(*peer, piece.to_string_view(), handle);
      if (read.ok()) continue;
      spdlog::debug("a connection to {} ends: {}", endpoint(), std::string(read.message()));
      Disconnect(peer);
    }
  }
}

void ZmtpListener::Admit(const std::string& id) {
  zmq::message_t greeting(ZmtpGreeting());
  if (Send(id, greeting) != Sent::kYes) return;
  peers_.try_emplace(id);
  // The numbers ascend, so the first peer is the oldest.
  for (auto peer = peers_.begin(); peers_.size() > kMaxPeers && peer != peers_.end();) {
    const auto each = peer++;
    if (each->second.subscriptions.empty()) Disconnect(each);
  }
}

void ZmtpListener::Disconnect(Peers::iterator peer) {
  peer->second.subscriptions.clear();
  peer->second.ended = true;
  zmq::message_t empty;
  if (Send(peer->first, empty) != Sent::kFull) peers_.erase(peer);
}

absl::Status ZmtpListener::Read(Peers::value_type& peer, std::string_view piece, Handler handle) {
  ZmtpReader& reader = peer.second.reader;
  const bool greeted = reader.greeted();
  TLM_RETURN_IF_ERROR(
      reader.Read(piece, [&](const ZmtpFrame& frame) { return Take(peer, frame, handle); }));
  if (reader.greeted() && !greeted) {
    zmq::message_t ready(ZmtpReady(socket_type_));
    Send(peer.first, ready);
  }
  return absl::OkStatus();
}

absl::Status ZmtpListener::Take(Peers::value_type& peer, const ZmtpFrame& frame, Handler handle) {
  ZmtpPeer& its = peer.second;
  if (frame.is_command) {
    its.ready |= IsZmtpCommand(frame, "READY");
    if (IsZmtpCommand(frame, "PING")) {
      zmq::message_t pong(ZmtpPong(frame));
      Send(peer.first, pong);
    }
    return absl::OkStatus();
  }
  if (!its.ready) return InvalidArgument("the peer sends a message before the command READY");
  if (its.frames.size() < kMaxFrames) its.frames.emplace_back(frame.body);
  if (frame.has_more) return absl::OkStatus();
  handle(peer, its.frames);
  its.frames.clear();
  return absl::OkStatus();
}

ZmtpListener::Sent ZmtpListener::Send(const std::string& peer, zmq::message_t& message) {
  try {
    const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    if (!socket_.send(zmq::buffer(peer), more).has_value()) return Sent::kFull;
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    return Sent::kGone;
  }
  zmq::message_t shared;
  shared.copy(message);
  socket_.send(shared, zmq::send_flags::none);
  return Sent::kYes;
}

}  // namespace tlm
