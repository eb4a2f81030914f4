#include "server/kv_events/zmq_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr auto kPatience = std::chrono::seconds(20);

struct Message {
  std::string topic;
  uint64_t number = 0;
  Json batch;
};

uint64_t NumberOf(const std::string& bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

class Peer {
 public:
  Peer(zmq::socket_type type, const std::string& endpoint) : socket_(context_, type) {
    socket_.set(zmq::sockopt::linger, 0);
    if (type == zmq::socket_type::sub) socket_.set(zmq::sockopt::subscribe, "");
    socket_.connect(endpoint);
  }

  zmq::socket_t& socket() { return socket_; }

  // None when nothing comes within `patience`.
  std::optional<std::vector<std::string>> Frames(std::chrono::milliseconds patience = kPatience) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(patience.count()));
    std::vector<std::string> frames;
    for (bool more = true; more;) {
      zmq::message_t frame;
      if (!socket_.recv(frame).has_value()) return std::nullopt;
      frames.push_back(frame.to_string());
      more = frame.more();
    }
    return frames;
  }

  std::optional<Message> Receive(std::chrono::milliseconds patience = kPatience) {
    const auto frames = Frames(patience);
    if (!frames.has_value()) return std::nullopt;
    EXPECT_EQ(frames->size(), 3u);
    return Message{frames->at(0), NumberOf(frames->at(1)), Json::from_msgpack(frames->at(2))};
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
};

class ZmqPublisherTest : public ::testing::Test {
 protected:
  ZmqPublisherTest()
      : clock_(absl::FromUnixMillis(1'800'000'000'500)),
        log_({.enabled = true}, clock_, [this] { log_.CallListeners(); }),
        recorder_(log_, 100'000) {}

  void Start(std::string endpoint, std::string replay_endpoint = "", std::string topic = "") {
    auto opened =
        ZmqPublisher::Open({std::move(endpoint), std::move(replay_endpoint), std::move(topic)});
    ASSERT_THAT(opened, IsOk());
    publisher_ = *std::move(opened);
    ASSERT_THAT(publisher_->Publish(log_), IsOk());
  }

  std::string Ipc(const std::string& name) const { return "ipc://" + directory_.File(name); }

  void Store(BlockId block, BlockId parent = kNoBlock, const CacheScope& scope = {}) {
    const std::vector<int32_t> tokens(kBlockTokens, block);
    recorder_.OnStored(scope, parent, {~static_cast<uint64_t>(block), 0}, tokens, block);
  }
  void Step() { recorder_.EndStep(); }

  // Stores blocks from `block` on, one a step, until the peer, which may just have connected, gets
  // one; the message of the last of them.
  Message FirstReceived(Peer& peer, BlockId* block) {
    for (int i = 0; i < 1000; ++i) {
      Store((*block)++);
      Step();
      auto message = peer.Receive(std::chrono::milliseconds(20));
      if (!message.has_value()) continue;
      // Those behind it were on their way, too.
      const Json last = ~static_cast<uint64_t>(*block - 1);
      while (message.has_value() && message->batch[1][0][1][0] != last) message = peer.Receive();
      if (message.has_value()) return *std::move(message);
    }
    ADD_FAILURE() << "nothing came";
    return {};
  }

  TempDir directory_;
  FakeClock clock_;
  KvEventLog log_;
  KvEventRecorder recorder_;
  std::unique_ptr<ZmqPublisher> publisher_;  // before the log
};

TEST_F(ZmqPublisherTest, EventsHaveTheFormOfVllm) {
  const auto subscription = log_.Subscribe("", 0, {}).value();
  EXPECT_EQ(Json::from_msgpack(ToMsgpack(*subscription->Next())),
            Json::parse(R"([1800000000.5, [["AllBlocksCleared"]], 0])"));
  Store(1);
  Store(2, 1);
  Store(3, 2);
  recorder_.OnEvicted(3);
  Store(4, kNoBlock, {"", "secret"});
  Store(5, 4);
  Step();
  const Json batch = Json::from_msgpack(ToMsgpack(*subscription->Next()));
  const auto tokens = [](std::vector<int> contents) {
    Json ids = Json::array();
    for (const int content : contents) {
      for (int i = 0; i < kBlockTokens; ++i) ids.push_back(content);
    }
    return ids;
  };
  const auto hash = [](uint64_t block) { return Json(~block); };
  const Json none;
  const Json expected = Json::array(
      {Json::array({"BlockStored", Json::array({hash(1), hash(2), hash(3)}), none,
                    tokens({1, 2, 3}), 64, none, "GPU", none}),
       Json::array({"BlockRemoved", Json::array({hash(3)}), "GPU"}),
       Json::array({"BlockStored", Json::array({hash(4), hash(5)}), none, tokens({4, 5}), 64, none,
                    "GPU", none, Json::array({Json::array({"secret"}), none})})});
  EXPECT_EQ(batch, Json::array({1800000000.5, expected, 0}));
  Store(6, 5);
  Step();
  const Json next = Json::from_msgpack(ToMsgpack(*subscription->Next()));
  EXPECT_EQ(next[1][0][2], hash(5));
  EXPECT_EQ(next[1][0].size(), 8u) << "salts come with first blocks alone";
}

TEST_F(ZmqPublisherTest, PublishesWhatHappens) {
  Start("tcp://127.0.0.1:*", "", "kv@pod@model");
  EXPECT_THAT(publisher_->endpoint(), ::testing::MatchesRegex("tcp://127.0.0.1:[0-9]+"));
  Peer subscriber(zmq::socket_type::sub, publisher_->endpoint());
  BlockId block = 0;
  const Message first = FirstReceived(subscriber, &block);
  EXPECT_EQ(first.topic, "kv@pod@model");
  Store(5000, kNoBlock, {"tenant", ""});
  Step();
  recorder_.OnFlushed();
  Step();
  const auto cleared = subscriber.Receive();
  ASSERT_TRUE(cleared.has_value());
  EXPECT_EQ(cleared->number, first.number + 1) << "another tenant's block was told";
  EXPECT_EQ(cleared->batch[1], Json::parse(R"([["AllBlocksCleared"]])"));
  EXPECT_EQ(publisher_->dropped(), 0);
}

TEST_F(ZmqPublisherTest, AnswersReplays) {
  Start(Ipc("events"), Ipc("replay"), "topic");
  Peer subscriber(zmq::socket_type::sub, publisher_->endpoint());
  BlockId block = 0;
  const uint64_t last = FirstReceived(subscriber, &block).number;
  Peer dealer(zmq::socket_type::dealer, publisher_->replay_endpoint());
  const auto replay = [&](std::vector<std::string> request) {
    for (size_t i = 0; i < request.size(); ++i) {
      dealer.socket().send(zmq::buffer(request[i]), i + 1 < request.size()
                                                        ? zmq::send_flags::sndmore
                                                        : zmq::send_flags::none);
    }
  };
  const auto answers = [&] {
    std::vector<std::pair<uint64_t, std::string>> received;
    for (;;) {
      const auto frames = dealer.Frames();
      if (!frames.has_value() || frames->size() != 3) {
        ADD_FAILURE();
        return received;
      }
      EXPECT_EQ(frames->at(0), "");
      received.emplace_back(NumberOf(frames->at(1)), frames->at(2));
      if (received.back().first == ~uint64_t{0}) return received;
    }
  };
  // These are no requests.
  replay({"", "short"});
  replay({std::string(8, '\0')});
  replay({"", std::string(8, '\0'), "more", "and more"});
  replay({"", std::string(8, '\0')});
  const auto all = answers();
  ASSERT_EQ(all.size(), last + 2);
  for (uint64_t number = 0; number <= last; ++number) EXPECT_EQ(all[number].first, number);
  EXPECT_EQ(Json::from_msgpack(all[0].second)[1], Json::parse(R"([["AllBlocksCleared"]])"));
  EXPECT_EQ(Json::from_msgpack(all[last].second)[1][0][0], "BlockStored");
  EXPECT_EQ(all.back().second, "");
  replay({"", std::string(7, '\0') + '\1'});
  EXPECT_EQ(answers().at(0).first, 1u);
  replay({"", std::string(8, '\xFE')});
  EXPECT_EQ(answers().size(), 1u);
}

TEST_F(ZmqPublisherTest, ASubscriberThatDoesNotReadMissesMessagesAlone) {
  Start(Ipc("events"));
  Peer reader(zmq::socket_type::sub, publisher_->endpoint());
  Peer stuck(zmq::socket_type::sub, publisher_->endpoint());
  BlockId block = 0;
  uint64_t last = FirstReceived(reader, &block).number;
  FirstReceived(stuck, &block);
  // The snapshot at the start had number 0.
  while (last < static_cast<uint64_t>(block)) last = reader.Receive().value().number;
  while (publisher_->dropped() == 0 && block < 50'000) {
    Store(block++);
    Step();
    const auto message = reader.Receive();
    ASSERT_TRUE(message.has_value());
    ASSERT_EQ(message->number, ++last);
  }
  EXPECT_GT(publisher_->dropped(), 0);
}

TEST_F(ZmqPublisherTest, EndsWithTheLogOrBefore) {
  Start(Ipc("events"));
  EXPECT_EQ(log_.stats().subscriptions, 1);
  log_.Close();
  publisher_.reset();
  EXPECT_EQ(log_.stats().subscriptions, 0);
}

TEST_F(ZmqPublisherTest, EndpointsThatCannotBeBoundAreNamed) {
  const auto status = [](const std::string& endpoint, const std::string& replay = "") {
    return ZmqPublisher::Open({endpoint, replay, ""}).status();
  };
  Start("tcp://127.0.0.1:*");
  EXPECT_THAT(status(publisher_->endpoint()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(publisher_->endpoint()), HasSubstr("in use"))));
  const std::string file = directory_.Write("file", "kept");
  EXPECT_THAT(status("ipc://" + file), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                HasSubstr("exists and is no socket")));
  EXPECT_TRUE(std::ifstream(file).good());
  const auto first = ZmqPublisher::Open({Ipc("taken"), "", ""});
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(status("tcp://127.0.0.1:*", Ipc("taken")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
  EXPECT_THAT(status(Ipc("no/directory")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no/directory")));
}

}  // namespace
}  // namespace tlm
