// Encodes and decodes ZMTP 3.0 (https://rfc.zeromq.org/spec/23), the wire protocol of ZMQ's
// sockets, with the mechanism NULL, for the side that binds. Does no I/O.
#ifndef TLM_SERVER_KV_EVENTS_ZMTP_H_
#define TLM_SERVER_KV_EVENTS_ZMTP_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tlm {

struct ZmtpFrame {
  bool is_command = false;
  bool has_more = false;  // more frames of the message follow
  std::string_view body;
};

// Reads one peer's bytes, in pieces of any size, and stores at most one incomplete frame.
class ZmtpReader {
 public:
  static constexpr size_t kMaxBodyBytes = 1024;

  // Calls `take` for each complete frame. INVALID_ARGUMENT for a greeting of another protocol, an
  // older version or another mechanism, and for a frame of more than kMaxBodyBytes; also returns
  // the error of `take`. Do not call it after an error.
  absl::Status Read(std::string_view bytes, absl::FunctionRef<absl::Status(const ZmtpFrame&)> take);
  // Returns true when the peer's greeting is complete.
  bool greeted() const { return greeted_; }

 private:
  std::string rest_;  // incomplete part of the greeting or of a frame
  bool greeted_ = false;
};

std::string ZmtpGreeting();
// Returns the command that ends the handshake. `socket_type` is "PUB", "ROUTER", ...
std::string ZmtpReady(std::string_view socket_type);
// Returns the message with these frames.
std::string ZmtpMessage(std::initializer_list<std::string_view> frames);

// Returns whether the frame is the command `name`. A command's body is [name length, a byte] [name]
// [arguments].
bool IsZmtpCommand(const ZmtpFrame& frame, std::string_view name);
// Returns the answer to a frame that is the command PING.
std::string ZmtpPong(const ZmtpFrame& ping);

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_ZMTP_H_
