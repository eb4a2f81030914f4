// ZMTP 3.0 (https://rfc.zeromq.org/spec/23), the wire protocol of ZMQ's sockets, with the mechanism
// NULL: what the side that binds sends and reads, without I/O.
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
  bool has_more = false;  // further frames of the message follow
  std::string_view body;
};

// Reads what one peer sends, in pieces of any sizes, and keeps at most one incomplete frame.
class ZmtpReader {
 public:
  static constexpr size_t kMaxBodyBytes = 1024;

  // Calls `take` for each frame that is complete. INVALID_ARGUMENT for a greeting of another
  // protocol, an older version or another mechanism, and for a frame of more than kMaxBodyBytes,
  // or the error of `take`; no calls may follow.
  absl::Status Read(std::string_view bytes, absl::FunctionRef<absl::Status(const ZmtpFrame&)> take);
  // The peer's greeting is complete.
  bool greeted() const { return greeted_; }

 private:
  std::string rest_;  // of the greeting or of a frame
  bool greeted_ = false;
};

std::string ZmtpGreeting();
// The command that ends the handshake. `socket_type` is "PUB", "ROUTER", ...
std::string ZmtpReady(std::string_view socket_type);
// A message of these frames.
std::string ZmtpMessage(std::initializer_list<std::string_view> frames);

// The body of a command is [length of the name, a byte] [name] [arguments].
bool IsZmtpCommand(const ZmtpFrame& frame, std::string_view name);
// The answer to a frame that is the command PING.
std::string ZmtpPong(const ZmtpFrame& ping);

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_ZMTP_H_
