// What a ZMQ peer sends: the same frames however they are portioned. The first byte tells the
// portions.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "model/base/errors.h"
#include "server/kv_events/zmtp.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

struct Reading {
  absl::Status status;
  std::string frames;
};

Reading ReadInPortions(std::string_view bytes, size_t portion) {
  Reading reading;
  ZmtpReader reader;
  while (!bytes.empty() && reading.status.ok()) {
    reading.status = reader.Read(bytes.substr(0, portion), [&](const ZmtpFrame& frame) {
      TLM_CHECK(reader.greeted());
      TLM_CHECK(frame.body.size() <= ZmtpReader::kMaxBodyBytes);
      if (IsZmtpCommand(frame, "PING")) TLM_CHECK(ZmtpPong(frame).size() <= 2 + 5 + 16);
      reading.frames += fmt::format("{} {} {} ", frame.is_command, frame.has_more, frame.body);
      return absl::OkStatus();
    });
    bytes.remove_prefix(std::min(portion, bytes.size()));
  }
  return reading;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  const size_t portion = 1 + input.Byte() % 80;
  const bool greets = input.Byte() % 2 == 0;
  const std::string bytes = (greets ? tlm::ZmtpGreeting() : "") + std::string(input.Rest());
  const tlm::Reading whole = tlm::ReadInPortions(bytes, std::max<size_t>(bytes.size(), 1));
  const tlm::Reading portioned = tlm::ReadInPortions(bytes, portion);
  TLM_CHECK(whole.status == portioned.status);
  TLM_CHECK(whole.frames == portioned.frames);
  if (!whole.status.ok()) tlm::CheckRefusal(whole.status);
  return 0;
}
