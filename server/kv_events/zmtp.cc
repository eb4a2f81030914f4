#include "server/kv_events/zmtp.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "model/base/errors.h"

namespace tlm {
namespace {

// The greeting: [0xFF, 8 bytes, 0x7F] [version, two bytes] [mechanism] [as-server, filler].
constexpr size_t kGreetingBytes = 64;
constexpr size_t kVersionAt = 10;
constexpr size_t kMechanismAt = 12;
constexpr unsigned char kSignatureBegin = 0xFF;
constexpr unsigned char kSignatureEnd = 0x7F;
constexpr unsigned char kVersion = 3;
constexpr std::string_view kNull("NULL\0", 5);

constexpr unsigned char kMore = 1;
constexpr unsigned char kLong = 2;  // the length has 8 bytes
constexpr unsigned char kCommand = 4;
constexpr size_t kMaxShortBytes = 255;

unsigned char ByteAt(std::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

void AppendNumber(uint64_t number, int bytes, std::string& to) {
  for (int i = bytes - 1; i >= 0; --i) to += static_cast<char>(number >> (8 * i) & 0xFF);
}

void AppendFrame(unsigned char flags, std::string_view body, std::string& to) {
  const bool is_long = body.size() > kMaxShortBytes;
  to += static_cast<char>(flags | (is_long ? kLong : 0));
  AppendNumber(body.size(), is_long ? 8 : 1, to);
  to += body;
}

std::string Command(std::string_view name, std::string_view arguments) {
  std::string body;
  AppendNumber(name.size(), 1, body);
  body += name;
  body += arguments;
  std::string frame;
  AppendFrame(kCommand, body, frame);
  return frame;
}

// Checks the greeting's first bytes; the rest may be missing.
absl::Status CheckGreeting(std::string_view bytes) {
  const auto differs = [&](size_t at, unsigned char wanted) {
    return bytes.size() > at && ByteAt(bytes, at) != wanted;
  };
  if (differs(0, kSignatureBegin) || differs(kVersionAt - 1, kSignatureEnd)) {
    return InvalidArgument("the peer does not speak ZMTP");
  }
  if (bytes.size() > kVersionAt && ByteAt(bytes, kVersionAt) < kVersion) {
    return InvalidArgument("the peer's version of ZMTP is {}, the first that is read is {}",
                           ByteAt(bytes, kVersionAt), kVersion);
  }
  if (bytes.size() >= kGreetingBytes && bytes.substr(kMechanismAt, kNull.size()) != kNull) {
    return InvalidArgument("the peer's security mechanism is not NULL");
  }
  return absl::OkStatus();
}

// Takes the first frame from `bytes`. nullopt: it is incomplete.
absl::StatusOr<std::optional<ZmtpFrame>> TakeFrame(std::string_view& bytes) {
  if (bytes.empty()) return std::nullopt;
  const unsigned char flags = ByteAt(bytes, 0);
  const size_t header = (flags & kLong) != 0 ? 9 : 2;
  if (bytes.size() < header) return std::nullopt;
  uint64_t length = 0;
  for (size_t i = 1; i < header; ++i) length = length << 8 | ByteAt(bytes, i);
  if (length > ZmtpReader::kMaxBodyBytes) {
    return InvalidArgument("the peer's frame has {} bytes, the limit is {}", length,
                           ZmtpReader::kMaxBodyBytes);
  }
  if (bytes.size() < header + length) return std::nullopt;
  const ZmtpFrame frame = {.is_command = (flags & kCommand) != 0,
                           .has_more = (flags & kMore) != 0,
                           .body = bytes.substr(header, length)};
  bytes.remove_prefix(header + length);
  return frame;
}

}  // namespace

absl::Status ZmtpReader::Read(std::string_view bytes,
                              absl::FunctionRef<absl::Status(const ZmtpFrame&)> take) {
  rest_ += bytes;
  std::string_view left = rest_;
  if (!greeted_) {
    TLM_RETURN_IF_ERROR(CheckGreeting(left));
    if (left.size() < kGreetingBytes) return absl::OkStatus();
    left.remove_prefix(kGreetingBytes);
    greeted_ = true;
  }
  for (;;) {
    TLM_ASSIGN_OR_RETURN(const std::optional<ZmtpFrame> frame, TakeFrame(left));
    if (!frame.has_value()) break;
    TLM_RETURN_IF_ERROR(take(*frame));
  }
  rest_.erase(0, rest_.size() - left.size());
  return absl::OkStatus();
}

std::string ZmtpGreeting() {
  std::string greeting(kGreetingBytes, '\0');
  greeting[0] = static_cast<char>(kSignatureBegin);
  greeting[kVersionAt - 1] = static_cast<char>(kSignatureEnd);
  greeting[kVersionAt] = static_cast<char>(kVersion);
  return greeting.replace(kMechanismAt, kNull.size(), kNull);
}

std::string ZmtpReady(std::string_view socket_type) {
  constexpr std::string_view kProperty = "Socket-Type";
  std::string properties;
  AppendNumber(kProperty.size(), 1, properties);
  properties += kProperty;
  AppendNumber(socket_type.size(), 4, properties);
  properties += socket_type;
  return Command("READY", properties);
}

std::string ZmtpMessage(std::initializer_list<std::string_view> frames) {
  std::string message;
  size_t left = frames.size();
  for (const std::string_view body : frames) AppendFrame(--left > 0 ? kMore : 0, body, message);
  return message;
}

bool IsZmtpCommand(const ZmtpFrame& frame, std::string_view name) {
  return frame.is_command && !frame.body.empty() && ByteAt(frame.body, 0) == name.size() &&
         frame.body.substr(1).starts_with(name);
}

std::string ZmtpPong(const ZmtpFrame& ping) {
  // The frame's arguments: [time to live, two bytes] [context].
  constexpr size_t kContextAt = std::string_view("\4PING").size() + 2;
  constexpr size_t kMaxContextBytes = 16;
  const size_t at = std::min(kContextAt, ping.body.size());
  return Command("PONG", ping.body.substr(at, kMaxContextBytes));
}

}  // namespace tlm
