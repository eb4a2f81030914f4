#include "server/kv_events/zmq_publisher.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "absl/time/time.h"
#include "model/base/descriptor.h"
#include "model/base/errors.h"
#include "model/base/thread_name.h"
#include "server/kv_events/zmtp_listener.h"

namespace tlm {
namespace {

using Json = nlohmann::json;

constexpr char kMedium[] = "GPU";

Json HashesOf(const KvEvent& event) {
  Json hashes = Json::array();
  for (const auto& block : event.blocks) hashes.push_back(block->hash);
  return hashes;
}

Json Stored(const KvEvent& event) {
  const KvBlock& first = *event.blocks.front();
  Json tokens = Json::array();
  for (const auto& block : event.blocks) {
    for (const int32_t token : block->tokens) tokens.push_back(token);
  }
  Json stored = Json::array({"BlockStored", HashesOf(event), nullptr, std::move(tokens),
                             kBlockTokens, nullptr, kMedium, nullptr});
  if (first.parent_hash.has_value()) {
    stored[2] = *first.parent_hash;
  } else if (!first.scope->salt.empty()) {
    Json keys(event.blocks.size(), nullptr);
    keys[0] = Json::array({first.scope->salt});
    stored.push_back(std::move(keys));
  }
  return stored;
}

Json Event(const KvEvent& event) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return Stored(event);
    case KvEvent::Kind::kRemoved:
      return Json::array({"BlockRemoved", HashesOf(event), kMedium});
    case KvEvent::Kind::kCleared:
      break;
  }
  return Json::array({"AllBlocksCleared"});
}

// The most replay messages that may wait for their reader; they share the memory of the history.
constexpr int kMaxReplies = 20'000;
// Limits of work between two looks at the other sources of work, so that none waits long.
constexpr int kBatchesAtATime = 64;
constexpr int kPiecesAtATime = 32;  // pieces that subscribers sent
constexpr int kRepliesAtATime = 256;
// From this many replays on, requests wait in their connections.
constexpr size_t kMaxReplays = 64;
constexpr uint64_t kEndOfReplay = ~uint64_t{0};

std::string BigEndian(uint64_t number) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, number >>= 8) bytes[i] = static_cast<char>(number & 0xFF);
  return bytes;
}

uint64_t FromBigEndian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

// Wakes the thread from a poll.
class WakeUp : public KvEventListener {
 public:
  WakeUp() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TLM_CHECK(event_.get() >= 0); }
  void OnKvEvents() override { eventfd_write(event_.get(), 1); }
  void Clear() {
    eventfd_t unused;
    eventfd_read(event_.get(), &unused);
  }
  int descriptor() const { return event_.get(); }

 private:
  const Descriptor event_;
};

}  // namespace

std::vector<uint8_t> ToMsgpack(const KvEventBatch& batch) {
  Json events = Json::array();
  for (const KvEvent& event : batch.events) events.push_back(Event(event));
  return Json::to_msgpack(
      Json::array({absl::ToDoubleSeconds(batch.time - absl::UnixEpoch()), std::move(events), 0}));
}

// Once the thread runs, only it uses the sockets.
class ZmqPublisher::Impl {
 public:
  ~Impl() {
    stopping_.store(true, std::memory_order_release);
    wake_up_->OnKvEvents();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Open(const ZmqOptions& options) {
    topic_ = options.topic;
    TLM_RETURN_IF_ERROR(events_.Bind(options.endpoint));
    endpoint_ = events_.endpoint();
    if (options.replay_endpoint.empty()) return absl::OkStatus();
    replay_.emplace(context_, "ROUTER", kMaxReplies);
    TLM_RETURN_IF_ERROR(replay_->Bind(options.replay_endpoint));
    replay_endpoint_ = replay_->endpoint();
    return absl::OkStatus();
  }

  absl::Status Publish(KvEventLog& log) {
    TLM_ASSIGN_OR_RETURN(subscription_, log.Subscribe(/*tenant=*/"", 0, wake_up_));
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Replay {
    std::string peer;
    uint64_t next;  // number of the next message to send
  };

  void Run() {
    NameThisThread("kv_events");
    try {
      while (Step()) {
      }
    } catch (const zmq::error_t& error) {
      spdlog::error("KV events over ZMQ end: {}", error.what());
    }
    subscription_.reset();
  }

  // False: the thread must end.
  bool Step() {
    std::vector<zmq::pollitem_t> sources = {{nullptr, wake_up_->descriptor(), ZMQ_POLLIN, 0},
                                            {events_.handle(), 0, ZMQ_POLLIN, 0}};
    const bool hears_requests = replay_.has_value() && replays_.size() < kMaxReplays;
    if (hears_requests) sources.push_back({replay_->handle(), 0, ZMQ_POLLIN, 0});
    zmq::poll(sources, std::chrono::milliseconds(behind_ || !replays_.empty() ? 0 : -1));
    if (sources[0].revents != 0) {
      wake_up_->Clear();
      behind_ = true;
      if (stopping_.load(std::memory_order_acquire) || subscription_->closed()) return false;
    }
    for (int i = 0; i < kBatchesAtATime && behind_; ++i) {
      const auto batch = subscription_->Next();
      behind_ = batch != nullptr;
      if (behind_) Send(*batch);
    }
    events_.Receive(kPiecesAtATime, [this](auto& peer, auto frames) { Subscribe(peer, frames); });
    if (hears_requests) {
      replay_->Receive(1, [this](auto& peer, auto frames) { Request(peer, frames); });
    }
    SendReplays();
    return true;
  }

  // Handles [1 or 0, prefix], a subscription or its end. Only prefixes of the topic matter, and a
  // peer with several of them gets each message once.
  void Subscribe(ZmtpListener::Peers::value_type& peer, std::span<const std::string> frames) {
    const std::string_view message = frames[0];
    if (frames.size() != 1 || message.empty() || !topic_.starts_with(message.substr(1))) return;
    if (message[0] == 1) peer.second.subscriptions.insert(message.size() - 1);
    if (message[0] == 0) peer.second.subscriptions.erase(message.size() - 1);
  }

  void Send(const KvEventBatch& batch) {
    const std::vector<uint8_t> bytes = ToMsgpack(batch);
    const std::string_view payload(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string number = BigEndian(next_++);
    zmq::message_t message(ZmtpMessage({topic_, number, payload}));
    if (!SendToSubscribers(message)) dropped_.fetch_add(1, std::memory_order_relaxed);
    if (replay_.has_value()) Keep(zmq::message_t(ZmtpMessage({"", number, payload})));
  }

  // Returns false when a subscriber had no room.
  bool SendToSubscribers(zmq::message_t& message) {
    bool all = true;
    for (auto peer = events_.peers().begin(); peer != events_.peers().end();) {
      const auto sent = peer->second.subscriptions.empty() ? ZmtpListener::Sent::kYes
                                                           : events_.Send(peer->first, message);
      all = all && sent != ZmtpListener::Sent::kFull;
      peer = sent == ZmtpListener::Sent::kGone ? events_.peers().erase(peer) : std::next(peer);
    }
    return all;
  }

  void Keep(zmq::message_t message) {
    history_bytes_ += static_cast<int64_t>(message.size());
    history_.push_back(std::move(message));
    constexpr KvEventOptions kBounds;
    while (history_bytes_ > kBounds.max_bytes ||
           static_cast<int64_t>(history_.size()) > kBounds.max_batches) {
      history_bytes_ -= static_cast<int64_t>(history_.front().size());
      history_.pop_front();
    }
  }

  // Handles [empty, number]; ignores anything else.
  void Request(ZmtpListener::Peers::value_type& peer, std::span<const std::string> frames) {
    if (frames.size() != 2 || !frames[0].empty() || frames[1].size() != 8) return;
    replays_.push_back({peer.first, FromBigEndian(frames[1])});
  }

  // Ends a replay early when its reader has kMaxReplies unread messages.
  void SendReplays() {
    const uint64_t oldest = next_ - history_.size();
    for (int i = 0; i < kRepliesAtATime && !replays_.empty(); ++i) {
      Replay& replay = replays_.front();
      replay.next = std::max(replay.next, oldest);
      const bool ends = replay.next >= next_;
      zmq::message_t& message = ends ? end_of_replay_ : history_[replay.next++ - oldest];
      const auto sent = replay_->Send(replay.peer, message);
      if (ends || sent != ZmtpListener::Sent::kYes) replays_.pop_front();
    }
  }

  zmq::context_t context_;
  ZmtpListener events_{context_, "PUB", kHighWaterMark};
  std::optional<ZmtpListener> replay_;
  std::string topic_;
  std::string endpoint_;
  std::string replay_endpoint_;
  const std::shared_ptr<WakeUp> wake_up_ = std::make_shared<WakeUp>();
  std::unique_ptr<KvEventSubscription> subscription_;
  std::atomic<bool> stopping_{false};
  bool behind_ = true;                  // there may be batches to send
  uint64_t next_ = 0;                   // sequence number of the next batch
  std::deque<zmq::message_t> history_;  // replay messages; the last one has the number next_ - 1
  int64_t history_bytes_ = 0;
  zmq::message_t end_of_replay_{ZmtpMessage({"", BigEndian(kEndOfReplay), ""})};
  std::deque<Replay> replays_;
  std::atomic<int64_t> dropped_{0};
  std::thread thread_;
};

ZmqPublisher::ZmqPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ZmqPublisher::~ZmqPublisher() = default;

absl::StatusOr<std::unique_ptr<ZmqPublisher>> ZmqPublisher::Open(const ZmqOptions& options) {
  auto impl = std::make_unique<Impl>();
  TLM_RETURN_IF_ERROR(impl->Open(options));
  return std::unique_ptr<ZmqPublisher>(new ZmqPublisher(std::move(impl)));
}

absl::Status ZmqPublisher::Publish(KvEventLog& log) { return impl_->Publish(log); }

std::string ZmqPublisher::endpoint() const { return impl_->endpoint(); }

std::string ZmqPublisher::replay_endpoint() const { return impl_->replay_endpoint(); }

int64_t ZmqPublisher::dropped() const { return impl_->dropped(); }

}  // namespace tlm
