#include "server/kv_events/zmq_publisher.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "absl/time/time.h"
#include "model/base/descriptor.h"
#include "model/base/errors.h"
#include "model/base/thread_name.h"

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

constexpr std::string_view kIpc = "ipc://";
// Peers send subscriptions and sequence numbers.
constexpr int64_t kMaxReceivedBytes = 1024;
// Replies to one replay; they share the memory of the history.
constexpr int kMaxReplies = 20'000;
// Batches sent between two looks at replay requests.
constexpr int kBatchesAtATime = 64;
constexpr uint64_t kEndOfReplay = ~uint64_t{0};

using SequenceBytes = std::array<unsigned char, 8>;

SequenceBytes BigEndian(uint64_t number) {
  SequenceBytes bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(number >> (8 * (bytes.size() - 1 - i)));
  }
  return bytes;
}

uint64_t FromBigEndian(const zmq::message_t& bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) number = number << 8 | bytes.data<unsigned char>()[i];
  return number;
}

// libzmq removes whatever file has the name of a socket that it binds.
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

absl::Status Bind(zmq::socket_t& socket, const std::string& endpoint) {
  absl::Status status;
  if (endpoint.starts_with(kIpc)) status = CheckIpcPath(endpoint.substr(kIpc.size()));
  if (status.ok()) {
    try {
      socket.set(zmq::sockopt::ipv6, endpoint.find('[') != endpoint.npos);
      socket.bind(endpoint);
      return status;
    } catch (const zmq::error_t& error) {
      status = FailedPrecondition("{}", error.what());
    }
  }
  return WithContext(status, fmt::format("cannot publish KV events on {}", endpoint));
}

// Wakes the thread in a poll.
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

// The thread alone uses the sockets once it runs.
class ZmqPublisher::Impl {
 public:
  ~Impl() {
    stopping_.store(true, std::memory_order_release);
    wake_up_->OnKvEvents();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Open(const ZmqOptions& options) {
    topic_ = options.topic;
    SetUp(pub_, kHighWaterMark);
    TLM_RETURN_IF_ERROR(Bind(pub_, options.endpoint));
    endpoint_ = pub_.get(zmq::sockopt::last_endpoint);
    if (options.replay_endpoint.empty()) return absl::OkStatus();
    replay_.emplace(context_, zmq::socket_type::router);
    SetUp(*replay_, kMaxReplies);
    TLM_RETURN_IF_ERROR(Bind(*replay_, options.replay_endpoint));
    replay_endpoint_ = replay_->get(zmq::sockopt::last_endpoint);
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
  struct Sent {
    uint64_t number;
    zmq::message_t payload;
  };

  static void SetUp(zmq::socket_t& socket, int high_water_mark) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, high_water_mark);
    socket.set(zmq::sockopt::maxmsgsize, kMaxReceivedBytes);
  }

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

  // False at the end.
  bool Step() {
    std::vector<zmq::pollitem_t> sources = {{nullptr, wake_up_->descriptor(), ZMQ_POLLIN, 0}};
    if (replay_.has_value()) sources.push_back({replay_->handle(), 0, ZMQ_POLLIN, 0});
    zmq::poll(sources, std::chrono::milliseconds(behind_ ? 0 : -1));
    wake_up_->Clear();
    if (stopping_.load(std::memory_order_acquire) || subscription_->closed()) return false;
    if (replay_.has_value() && sources[1].revents != 0) AnswerReplay();
    behind_ = true;
    for (int i = 0; i < kBatchesAtATime && behind_; ++i) {
      const auto batch = subscription_->Next();
      behind_ = batch != nullptr;
      if (behind_) Send(*batch);
    }
    return true;
  }

  void Send(const KvEventBatch& batch) {
    const std::vector<uint8_t> bytes = ToMsgpack(batch);
    zmq::message_t payload(bytes.data(), bytes.size());
    const SequenceBytes number = BigEndian(next_);
    SendTopic();
    pub_.send(zmq::buffer(number), zmq::send_flags::sndmore);
    if (replay_.has_value()) Keep(payload);
    pub_.send(payload, zmq::send_flags::none);
    ++next_;
  }

  // Counts when a subscriber has no room. Then all but that one get the message.
  void SendTopic() {
    const auto more = zmq::send_flags::sndmore;
    pub_.set(zmq::sockopt::xpub_nodrop, true);
    const bool room = pub_.send(zmq::buffer(topic_), more | zmq::send_flags::dontwait).has_value();
    pub_.set(zmq::sockopt::xpub_nodrop, false);
    if (room) return;
    dropped_.fetch_add(1, std::memory_order_relaxed);
    pub_.send(zmq::buffer(topic_), more);
  }

  void Keep(zmq::message_t& payload) {
    Sent& sent = history_.emplace_back();
    sent.number = next_;
    sent.payload.copy(payload);
    history_bytes_ += static_cast<int64_t>(payload.size());
    constexpr KvEventOptions kBounds;
    while (history_bytes_ > kBounds.max_bytes ||
           static_cast<int64_t>(history_.size()) > kBounds.max_batches) {
      history_bytes_ -= static_cast<int64_t>(history_.front().payload.size());
      history_.pop_front();
    }
  }

  // Of [client, empty, number]; anything else is ignored.
  void AnswerReplay() {
    std::vector<zmq::message_t> frames;
    bool more = true;
    while (more) {
      zmq::message_t frame;
      if (!replay_->recv(frame, zmq::recv_flags::dontwait).has_value()) return;
      more = frame.more();
      if (frames.size() < 4) frames.push_back(std::move(frame));
    }
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) return;
    const uint64_t first = FromBigEndian(frames[2]);
    for (Sent& sent : history_) {
      if (sent.number >= first) Reply(frames[0], sent.number, sent.payload);
    }
    zmq::message_t empty;
    Reply(frames[0], kEndOfReplay, empty);
  }

  void Reply(zmq::message_t& client, uint64_t number, zmq::message_t& payload) {
    const auto more = zmq::send_flags::sndmore;
    zmq::message_t to;
    to.copy(client);
    zmq::message_t shared;
    shared.copy(payload);
    replay_->send(to, more);
    replay_->send(zmq::const_buffer(), more);
    replay_->send(zmq::buffer(BigEndian(number)), more);
    replay_->send(shared, zmq::send_flags::none);
  }

  zmq::context_t context_;
  zmq::socket_t pub_{context_, zmq::socket_type::pub};
  std::optional<zmq::socket_t> replay_;
  std::string topic_;
  std::string endpoint_;
  std::string replay_endpoint_;
  const std::shared_ptr<WakeUp> wake_up_ = std::make_shared<WakeUp>();
  std::unique_ptr<KvEventSubscription> subscription_;
  std::atomic<bool> stopping_{false};
  bool behind_ = true;        // there may be batches to send
  uint64_t next_ = 0;         // sequence number
  std::deque<Sent> history_;  // for replays
  int64_t history_bytes_ = 0;
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
