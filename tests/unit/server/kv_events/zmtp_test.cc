#include "server/kv_events/zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;

// (command, more, body)
using Frame = std::tuple<bool, bool, std::string>;

struct Reading {
  absl::Status status;
  std::vector<Frame> frames;
};

Reading ReadInPieces(const std::string& bytes, size_t piece) {
  Reading reading;
  ZmtpReader reader;
  for (size_t begin = 0; begin < bytes.size() && reading.status.ok(); begin += piece) {
    reading.status = reader.Read(bytes.substr(begin, piece), [&](const ZmtpFrame& frame) {
      reading.frames.emplace_back(frame.is_command, frame.has_more, frame.body);
      return absl::OkStatus();
    });
  }
  return reading;
}

TEST(ZmtpTest, WritesTheBytesOfTheSpecification) {
  EXPECT_EQ(ZmtpGreeting(), "\xFF\0\0\0\0\0\0\0\0\x7F\3\0NULL"s + std::string(48, '\0'));
  EXPECT_EQ(ZmtpReady("PUB"), "\4\x19\5READY\xBSocket-Type\0\0\0\3PUB"s);
  EXPECT_EQ(ZmtpMessage({"topic", "", std::string(255, 'a')}),
            "\1\5topic\1\0\0\xFF"s + std::string(255, 'a'));
  EXPECT_EQ(ZmtpMessage({std::string(256, 'a')}), "\2\0\0\0\0\0\0\1\0"s + std::string(256, 'a'));
}

TEST(ZmtpTest, AnswersAPingWithItsContext) {
  const auto pong = [](std::string body) { return ZmtpPong({.is_command = true, .body = body}); };
  EXPECT_EQ(pong("\4PING\0\1context"s), "\4\xC\4PONGcontext"s);
  EXPECT_EQ(pong("\4PING\0\1"s), "\4\5\4PONG"s);
  EXPECT_EQ(pong("\4PING"s), "\4\5\4PONG"s);
  EXPECT_EQ(pong("\4PING\0\1"s + std::string(17, 'c')), "\4\x15\4PONG"s + std::string(16, 'c'));
}

TEST(ZmtpTest, KnowsCommandsByName) {
  const auto is = [](bool command, std::string body) {
    return IsZmtpCommand({.is_command = command, .body = body}, "PING");
  };
  EXPECT_TRUE(is(true, "\4PING"));
  EXPECT_TRUE(is(true, "\4PING..."));
  EXPECT_FALSE(is(false, "\4PING"));
  EXPECT_FALSE(is(true, "\4PONG"));
  EXPECT_FALSE(is(true, "\3PIN"));
  EXPECT_FALSE(is(true, "\5PING."));
  EXPECT_FALSE(is(true, "\4PIN"));
  EXPECT_FALSE(is(true, ""));
}

TEST(ZmtpTest, FramesDoNotDependOnHowTheirBytesArrive) {
  const std::string longest(ZmtpReader::kMaxBodyBytes, 'x');
  const std::string bytes = ZmtpGreeting() + ZmtpReady("SUB") + ZmtpMessage({"\1a"}) +
                            ZmtpMessage({longest, "", "end"}) + "\2\0\0\0\0\0\0\0\1s"s;
  for (const size_t piece : {1, 2, 3, 7, 63, 64, 65, 100, 1000, 10'000}) {
    SCOPED_TRACE(piece);
    const Reading reading = ReadInPieces(bytes, piece);
    EXPECT_THAT(reading.status, IsOk());
    EXPECT_THAT(reading.frames, ElementsAre(Frame{true, false, ZmtpReady("SUB").substr(2)},
                                            Frame{false, false, "\1a"}, Frame{false, true, longest},
                                            Frame{false, true, ""}, Frame{false, false, "end"},
                                            Frame{false, false, "s"}));
  }
}

// As soon as the byte at fault is there.
TEST(ZmtpTest, RefusesOthersAndFramesThatAreTooLong) {
  const std::string greeting = ZmtpGreeting();
  const auto with = [&](size_t at, char byte) {
    std::string changed = greeting;
    changed[at] = byte;
    return changed;
  };
  const struct {
    std::string bytes, error;
  } kCases[] = {
      {"G", "does not speak ZMTP"},
      {"\xFF\0\0\0\0\0\0\0\1\0"s, "does not speak ZMTP"},
      {with(10, 2).substr(0, 11), "version of ZMTP is 2, the first that is read is 3"},
      {with(12, 'C'), "mechanism is not NULL"},
      {with(16, 'L'), "mechanism is not NULL"},
      {greeting + "\2\0\0\0\0\0\0\4\1"s, "frame has 1025 bytes, the limit is 1024"},
      {greeting + "\2\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, "frame has 18446744073709551615 bytes"},
  };
  for (const auto& each : kCases) {
    SCOPED_TRACE(each.error);
    for (const size_t piece : {size_t{1}, each.bytes.size()}) {
      EXPECT_THAT(ReadInPieces(each.bytes, piece).status,
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.error)));
    }
    EXPECT_THAT(ReadInPieces(each.bytes.substr(0, each.bytes.size() - 1), 1).status, IsOk());
  }
  EXPECT_THAT(ReadInPieces(with(10, 4), 1).status, IsOk()) << "later versions speak this one, too";
}

TEST(ZmtpTest, EndsWithTheErrorOfItsCaller) {
  ZmtpReader reader;
  int calls = 0;
  const auto refuse = [&](const ZmtpFrame&) {
    ++calls;
    return InvalidArgument("refused");
  };
  EXPECT_THAT(reader.Read(ZmtpGreeting(), refuse), IsOk());
  EXPECT_TRUE(reader.greeted());
  EXPECT_THAT(reader.Read(ZmtpMessage({"a", "b"}), refuse),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("refused")));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tlm
