// Publishes KV events over ZMQ.
#ifndef TLM_SERVER_KV_EVENTS_ZMQ_PUBLISHER_H_
#define TLM_SERVER_KV_EVENTS_ZMQ_PUBLISHER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/batching/kv_event_log.h"

namespace tlm {

// Encodes the batch in msgpack: [time in seconds, [event, ...], data-parallel rank], where an event
// is
//
//   ["BlockStored", [hash, ...], parent's hash or nil, [token id, ...], tokens of a block, LoRA id,
//    medium, LoRA name]    and, for the first blocks of a prompt with a salt, [[salt], nil, ...]
//   ["BlockRemoved", [hash, ...], medium]
//   ["AllBlocksCleared"]
//
// Hashes are unsigned 64-bit integers. The medium is always "GPU", vLLM's word for the memory in
// which the engine computes; there is no LoRA, and the rank is 0.
std::vector<uint8_t> ToMsgpack(const KvEventBatch& batch);

struct ZmqOptions {
  std::string endpoint;         // PUB socket: tcp://HOST:PORT or ipc://PATH; empty: no ZMQ
  std::string replay_endpoint;  // ROUTER socket; empty: no replays
  std::string topic;
};

// Sends the events of calls without a tenant as vLLM does. A PUB socket sends messages of three
// frames: topic, sequence number (8 bytes, big endian, from 0) and ToMsgpack of a batch. A ROUTER
// socket answers [number] with [number, batch] for each batch from that number on that it still
// has, then with [2^64 - 1, empty].
//
// A subscriber that has kHighWaterMark unread messages misses the next ones. The engine waits for
// no subscriber: a separate thread sends the contents of KvEventLog. Thread-safe.
class ZmqPublisher {
 public:
  static constexpr int kHighWaterMark = 1000;

  // Binds the sockets. FAILED_PRECONDITION names the endpoint that cannot be bound.
  static absl::StatusOr<std::unique_ptr<ZmqPublisher>> Open(const ZmqOptions& options);
  // Ends the thread at once.
  ~ZmqPublisher();
  ZmqPublisher(const ZmqPublisher&) = delete;
  ZmqPublisher& operator=(const ZmqPublisher&) = delete;

  // Starts the thread, which ends when the log is closed. Called once; `log` outlives this object.
  absl::Status Publish(KvEventLog& log);

  // Return the endpoints as bound, with the port's number.
  std::string endpoint() const;
  std::string replay_endpoint() const;  // empty: no replays
  // Returns the number of messages that at least one subscriber has missed.
  int64_t dropped() const;

 private:
  class Impl;
  explicit ZmqPublisher(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace tlm

#endif  // TLM_SERVER_KV_EVENTS_ZMQ_PUBLISHER_H_
