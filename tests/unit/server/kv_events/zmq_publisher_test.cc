#include "server/kv_events/zmq_publisher.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "model/base/descriptor.h"
#include "server/kv_events/zmtp_listener.h"
#include "tests/support/fake_clock.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

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

// A connection over TCP that sends any bytes.
class RawPeer {
 public:
  // Shakes hands as a socket of this type, if one is given.
  explicit RawPeer(const std::string& endpoint, const std::string& type = "")
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_TRUE(type.empty() || ShakeHands(type));
  }

  // False: the connection has ended, or `stop` is set.
  bool Send(std::string_view bytes, const std::atomic<bool>* stop = nullptr) {
    while (!bytes.empty() && (stop == nullptr || !stop->load())) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(),
                                MSG_NOSIGNAL | (stop == nullptr ? 0 : MSG_DONTWAIT));
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) {
        pollfd writable = {socket_.get(), POLLOUT, 0};
        poll(&writable, 1, 10);
      } else {
        bytes.remove_prefix(static_cast<size_t>(sent));
      }
    }
    return bytes.empty();
  }

  // Whether `wanted` has come so far; empty: the end.
  bool Has(const std::string& wanted) {
    char bytes[4096];
    for (;;) {
      const ssize_t received = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (received == 0 || (received < 0 && errno == ECONNRESET)) ended_ = true;
      if (received <= 0) break;
      received_.append(bytes, static_cast<size_t>(received));
    }
    return wanted.empty() ? ended_ : received_.find(wanted) != received_.npos;
  }

 private:
  // libzmq refuses messages that come before its READY has gone.
  bool ShakeHands(const std::string& type) {
    bool sent = Send(ZmtpGreeting() + ZmtpReady(type));
    while (sent && !Has("\5READY") && !ended_) {
      pollfd readable = {socket_.get(), POLLIN, 0};
      sent = poll(&readable, 1, 20'000) > 0;
    }
    return sent && !ended_;
  }

  const Descriptor socket_;
  std::string received_;
  bool ended_ = false;
};

const std::string kPing("\4\7\4PING\0\0", 9);
const std::string kPong("\4\5\4PONG", 7);

std::string RandomTopics(int count, size_t bytes) {
  std::mt19937 random(5);
  std::string all;
  for (int i = 0; i < count; ++i) {
    std::string topic = "\1";
    while (topic.size() <= bytes) topic += static_cast<char>('a' + random() % 26);
    all += ZmtpMessage({topic});
  }
  return all;
}

std::string Repeated(std::string_view text, int times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

class ZmqPublisherTest : public ::testing::Test {
 protected:
  static constexpr BlockId kBlocks = 400'000;

  ZmqPublisherTest()
      : clock_(absl::FromUnixMillis(1'800'000'000'500)),
        log_({.enabled = true}, clock_, [this] { log_.CallListeners(); }),
        recorder_(log_, kBlocks) {}

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

  void Subscribe() {
    subscriber_.emplace(zmq::socket_type::sub, publisher_->endpoint());
    last_ = FirstReceived(*subscriber_, &block_).number;
  }

  // Stores blocks, each in its own step, and lets the subscriber read them, until it is so.
  void PublishUntil(const std::function<bool()>& wanted) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!wanted()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      ASSERT_LT(block_, kBlocks);
      Store(block_++);
      Step();
      const auto message = subscriber_->Receive();
      ASSERT_TRUE(message.has_value());
      ASSERT_EQ(message->number, ++last_);
    }
  }

  TempDir directory_;
  FakeClock clock_;
  KvEventLog log_;
  KvEventRecorder recorder_;
  BlockId block_ = 0;
  std::unique_ptr<ZmqPublisher> publisher_;  // before the log
  std::optional<Peer> subscriber_;
  uint64_t last_ = 0;  // number of its messages
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
  const auto hash = [](uint64_t block) { return Json(~block); };
  const auto stored = [&](std::vector<uint64_t> blocks) {
    Json hashes = Json::array();
    Json tokens = Json::array();
    for (const uint64_t block : blocks) {
      hashes.push_back(hash(block));
      tokens.insert(tokens.end(), kBlockTokens, block);
    }
    return Json::array({"BlockStored", hashes, nullptr, tokens, 64, nullptr, "GPU", nullptr});
  };
  const Json removed = Json::array({"BlockRemoved", Json::array({hash(3)}), "GPU"});
  Json salted = stored({4, 5});
  salted.push_back(Json::parse(R"([["secret"], null])"));
  const Json events = Json::array({stored({1, 2, 3}), removed, salted});
  EXPECT_EQ(batch, Json::array({1800000000.5, events, 0}));
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
  const Message first = FirstReceived(subscriber, &block_);
  EXPECT_EQ(first.topic, "kv@pod@model");
  Store(5000, kNoBlock, {"tenant", ""});
  Step();
  recorder_.OnFlushed();
  Step();
  const Message cleared = subscriber.Receive().value();
  EXPECT_EQ(cleared.number, first.number + 1) << "another tenant's block was told";
  EXPECT_EQ(cleared.batch[1], Json::parse(R"([["AllBlocksCleared"]])"));
  EXPECT_EQ(publisher_->dropped(), 0);
}

TEST_F(ZmqPublisherTest, AnswersReplays) {
  Start(Ipc("events"), Ipc("replay"), "topic");
  Subscribe();
  Peer dealer(zmq::socket_type::dealer, publisher_->replay_endpoint());
  const auto replay = [&](std::vector<std::string> request) {
    for (const std::string& frame : request) {
      const bool last = &frame == &request.back();
      dealer.socket().send(zmq::buffer(frame),
                           last ? zmq::send_flags::none : zmq::send_flags::sndmore);
    }
  };
  const auto answers = [&] {
    std::vector<std::pair<uint64_t, std::string>> received;
    do {
      const std::vector<std::string> frames = dealer.Frames().value();
      EXPECT_EQ(frames.size(), 3u);
      EXPECT_EQ(frames.at(0), "");
      received.emplace_back(NumberOf(frames.at(1)), frames.at(2));
    } while (received.back().first != ~uint64_t{0});
    return received;
  };
  // These are no requests.
  replay({"", "short"});
  replay({std::string(8, '\0')});
  replay({"", std::string(8, '\0'), "more", "and more"});
  replay({"", std::string(8, '\0')});
  const auto all = answers();
  ASSERT_EQ(all.size(), last_ + 2);
  for (uint64_t number = 0; number <= last_; ++number) EXPECT_EQ(all[number].first, number);
  EXPECT_EQ(Json::from_msgpack(all[0].second)[1], Json::parse(R"([["AllBlocksCleared"]])"));
  EXPECT_EQ(Json::from_msgpack(all[last_].second)[1][0][0], "BlockStored");
  EXPECT_EQ(all.back().second, "");
  replay({"", std::string(7, '\0') + '\1'});
  EXPECT_EQ(answers().at(0).first, 1u);
  replay({"", std::string(8, '\xFE')});
  EXPECT_EQ(answers().size(), 1u);
}

TEST_F(ZmqPublisherTest, ASubscriberThatDoesNotReadMissesMessagesAlone) {
  Start(Ipc("events"));
  Subscribe();
  Peer stuck(zmq::socket_type::sub, publisher_->endpoint());
  FirstReceived(stuck, &block_);
  // The snapshot at the start had number 0.
  while (last_ < static_cast<uint64_t>(block_)) last_ = subscriber_->Receive().value().number;
  PublishUntil([&] { return publisher_->dropped() > 0 || block_ > 50'000; });
  EXPECT_GT(publisher_->dropped(), 0);
}

// Subscriptions to other topics are forgotten, and no peer makes the server keep what it sends.
TEST_F(ZmqPublisherTest, PeersTakeNoMemory) {
  Start("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "topic");
  Subscribe();
  const std::string without_end = Repeated(std::string("\1\1x"), 2'000'000);
  const std::string subscribed = RandomTopics(1, 1000);
  std::string cancelled = subscribed;
  cancelled[9] = 0;
  const struct {
    const char* what;
    std::string endpoint, type, bytes, end;
  } kCases[] = {
      {"many topics", publisher_->endpoint(), "SUB", RandomTopics(60'000, 100), ""},
      {"longer topics", publisher_->endpoint(), "SUB", RandomTopics(6'000, 1000), ""},
      {"subscribed and cancelled", publisher_->endpoint(), "SUB",
       Repeated(subscribed + cancelled, 3000), ""},
      {"a message without end", publisher_->endpoint(), "SUB", without_end, ZmtpMessage({""})},
      {"the same", publisher_->replay_endpoint(), "DEALER", without_end, ZmtpMessage({""})},
      {"no requests", publisher_->replay_endpoint(), "DEALER",
       Repeated(ZmtpMessage({"", "short"}), 500'000), ""},
  };
  for (const auto& each : kCases) {
    SCOPED_TRACE(each.what);
    RawPeer peer(each.endpoint, each.type);
    const std::string bytes = each.bytes + kPing;
    const int64_t before = ResidentBytes();
    std::atomic<bool> stop = false;
    std::thread sender([&] { peer.Send(bytes, &stop); });
    PublishUntil([&] { return peer.Has(kPong); });
    EXPECT_LT(ResidentBytes() - before, int64_t{64} << 20);
    stop = true;
    sender.join();
    EXPECT_TRUE(peer.Send(each.end));
  }
}

TEST_F(ZmqPublisherTest, EndlessSubscriptionsDelayNeitherEventsNorTheEnd) {
  Start("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "topic");
  Subscribe();
  const std::string topics = RandomTopics(5000, 100);
  const std::string requests = Repeated(ZmtpMessage({"", std::string(8, '\0')}), 5000);
  std::atomic<bool> stop = false;
  std::atomic<int> floods = 0;
  std::vector<std::thread> senders;
  for (int i = 0; i < 8; ++i) {
    senders.emplace_back([&, subscribes = i % 4 != 0] {
      RawPeer peer(subscribes ? publisher_->endpoint() : publisher_->replay_endpoint(),
                   subscribes ? "SUB" : "DEALER");
      bool counted = false;
      while (peer.Send(subscribes ? topics : requests, &stop)) {
        if (subscribes && !std::exchange(counted, true)) ++floods;
      }
    });
  }
  PublishUntil([&] { return floods == 6; });
  PublishUntil([&, before = block_] { return block_ >= before + 100; });
  EXPECT_EQ(publisher_->dropped(), 0);
  publisher_.reset();
  stop = true;
  for (std::thread& sender : senders) sender.join();
}

TEST_F(ZmqPublisherTest, DisconnectsThoseThatBreakTheBounds) {
  Start("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "topic");
  Subscribe();
  for (const std::string& endpoint : {publisher_->endpoint(), publisher_->replay_endpoint()}) {
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), ZmtpGreeting() + ZmtpMessage({"\1"}),
          ZmtpGreeting() + ZmtpReady("SUB") + RandomTopics(1, 1 << 20)}) {
      SCOPED_TRACE(Json(bytes.substr(0, 80)).dump(-1, ' ', true, Json::error_handler_t::ignore));
      RawPeer peer(endpoint);
      peer.Send(bytes);
      PublishUntil([&] { return peer.Has(""); });
    }
  }
}

// libzmq takes no order to disconnect while a peer's queue is full.
TEST_F(ZmqPublisherTest, APeerThatBreaksTheBoundsAndDoesNotReadGetsNothingMore) {
  Start("tcp://127.0.0.1:*");
  Subscribe();
  RawPeer stuck(publisher_->endpoint(), "SUB");
  ASSERT_TRUE(stuck.Send(ZmtpMessage({"\1"})));
  PublishUntil([&] { return publisher_->dropped() > 0; });
  ASSERT_TRUE(stuck.Send(RandomTopics(1, 2000)));
  int64_t dropped = 0;
  PublishUntil([&] { return dropped == std::exchange(dropped, publisher_->dropped()); });
  PublishUntil([&] { return stuck.Has("") || !stuck.Send("x"); });
}

TEST_F(ZmqPublisherTest, BeyondTheLimitConnectionsWithoutSubscriptionsEnd) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  // Both ends are in this process.
  if (files.rlim_max < 3 * ZmtpListener::kMaxPeers) GTEST_SKIP() << files.rlim_max << " files";
  Start("tcp://127.0.0.1:*", "", "topic");
  Subscribe();
  RawPeer elsewhere(publisher_->endpoint(), "SUB");
  ASSERT_TRUE(elsewhere.Send(ZmtpMessage({"\1other"}) + kPing));
  PublishUntil([&] { return elsewhere.Has(kPong); });
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (size_t i = 0; i < ZmtpListener::kMaxPeers; ++i) {
    silent.push_back(std::make_unique<RawPeer>(publisher_->endpoint()));
  }
  PublishUntil([&] { return elsewhere.Has("") && silent[0]->Has(""); });
  EXPECT_FALSE(silent.back()->Has(""));
  Peer another(zmq::socket_type::sub, publisher_->endpoint());
  FirstReceived(another, &block_);
}

TEST_F(ZmqPublisherTest, PeersChooseByPrefixesOfTheTopic) {
  Start("tcp://127.0.0.1:*", "", "kv@pod");
  const struct {
    std::string sent;
    bool receives;
  } kCases[] = {
      {ZmtpMessage({"\1"}), true},
      {ZmtpMessage({"\1kv@"}), true},
      {ZmtpMessage({"\1kv@pod"}), true},
      {ZmtpMessage({"\1kv@pod2"}), false},
      {ZmtpMessage({"\1pod"}), false},
      {ZmtpMessage({""}), false},
      {ZmtpMessage({"kv@"}), false},
      {ZmtpMessage({"\1kv@", "second frame"}), false},
      {ZmtpMessage({std::string("\0kv@", 4)}), false},
      {ZmtpMessage({"\1kv@"}) + ZmtpMessage({"\1kv@"}) + ZmtpMessage({std::string("\0kv@", 4)}),
       false},
      {ZmtpMessage({"\1kv@"}) + ZmtpMessage({"\1"}) + ZmtpMessage({std::string("\0kv@", 4)}), true},
  };
  Subscribe();
  for (const auto& each : kCases) {
    SCOPED_TRACE(Json(each.sent).dump());
    RawPeer peer(publisher_->endpoint(), "SUB");
    ASSERT_TRUE(peer.Send(each.sent + kPing));
    PublishUntil([&] { return peer.Has(kPong); });
    PublishUntil([&, before = block_] { return block_ > before; });
    // What was published before the second pong has come before it.
    ASSERT_TRUE(peer.Send(kPing));
    PublishUntil([&] { return peer.Has(kPong + kPong) || peer.Has("BlockStored"); });
    EXPECT_EQ(peer.Has("BlockStored"), each.receives);
  }
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
              IsFailedPrecondition(publisher_->endpoint(), "in use"));
  const std::string file = directory_.Write("file", "kept");
  EXPECT_THAT(status("ipc://" + file), IsFailedPrecondition("exists and is no socket"));
  EXPECT_TRUE(std::ifstream(file).good());
  const auto first = ZmqPublisher::Open({Ipc("taken"), "", ""}).value();
  EXPECT_THAT(status("tcp://127.0.0.1:*", Ipc("taken")), IsFailedPrecondition("another process"));
  EXPECT_THAT(status(Ipc("no/directory")), IsFailedPrecondition("no/directory"));
}

}  // namespace
}  // namespace tlm
