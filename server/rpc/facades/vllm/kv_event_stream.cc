#include "server/rpc/facades/vllm/kv_event_stream.h"

#include <memory>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/rpc/call/answer_call.h"

namespace tlm {
namespace {

using Message = ::smg::grpc::common::KvEventBatch;

// The wire has signed numbers; only their equality matters.
int64_t Signed(uint64_t hash) { return static_cast<int64_t>(hash); }

void FillStored(const KvEvent& event, ::smg::grpc::common::KvBlocksStored& stored) {
  const KvBlock& first = *event.blocks.front();
  if (first.parent_hash.has_value()) stored.set_parent_block_hash(Signed(*first.parent_hash));
  if (!first.scope->salt.empty()) stored.set_cache_salt(first.scope->salt);
  for (const std::shared_ptr<const KvBlock>& from : event.blocks) {
    ::smg::grpc::common::KvBlock& block = *stored.add_blocks();
    block.set_block_hash(Signed(from->hash));
    block.mutable_token_ids()->Assign(from->tokens.begin(), from->tokens.end());
    block.set_block_size(kBlockTokens);
  }
}

// Lives until gRPC is done with it and no wake-up runs.
class KvEventStream final : public grpc::ServerWriteReactor<Message>,
                            public KvEventListener,
                            public std::enable_shared_from_this<KvEventStream> {
 public:
  explicit KvEventStream(CallRecord record) : record_(std::move(record)) {}

  // `log` is null for a call that ends with the record's status.
  void Start(KvEventLog* log, uint64_t after) {
    self_ = shared_from_this();
    if (log != nullptr) {
      auto subscription = log->Subscribe(record_.caller.tenant, after, weak_from_this());
      // Sent at once: clients take it as the sign that the subscription exists.
      if (subscription.ok()) StartSendInitialMetadata();
      MutexLock lock(&mutex_);
      record_.status = subscription.status();
      if (subscription.ok()) subscription_ = *std::move(subscription);
    }
    Pump();
  }

  void OnKvEvents() override { Pump(); }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      cancelled_ |= !ok;
    }
    Pump();
  }
  void OnCancel() override {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    Pump();
  }
  void OnDone() override {
    EndCall(record_);
    const std::shared_ptr<KvEventStream> last = std::move(self_);
  }

 private:
  // Writes the next batch, or ends the call, unless a write is in flight.
  void Pump() {
    bool ends = false;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finished_) return;
      const bool reads = subscription_ != nullptr && !cancelled_;
      const std::shared_ptr<const KvEventBatch> batch = reads ? subscription_->Next() : nullptr;
      if (batch != nullptr) {
        message_.Clear();
        FillKvEventBatch(*batch, message_);
        writing_ = true;
      } else if (reads && !subscription_->closed()) {
        return;
      } else {
        ends = finished_ = true;
        subscription_.reset();
        if (cancelled_) record_.status = CancelledStatus(record_);
        if (record_.status.ok()) {
          record_.status = WithReason(Unavailable("the server is shutting down"), "DRAINING");
        }
      }
    }
    // Outside the lock: writing_ or finished_ keeps other threads from getting here.
    if (ends) {
      Finish(ToGrpcStatus(record_.status));
    } else {
      StartWrite(&message_);
    }
  }

  CallRecord record_;  // constant once finished_
  // Owns itself until OnDone, because gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<KvEventStream> self_;
  Message message_;  // owned by gRPC during a write
  Mutex mutex_;
  std::unique_ptr<KvEventSubscription> subscription_ TLM_GUARDED_BY(mutex_);
  bool writing_ TLM_GUARDED_BY(mutex_) = false;
  bool cancelled_ TLM_GUARDED_BY(mutex_) = false;
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

void FillKvEventBatch(const KvEventBatch& batch, Message& message) {
  message.set_sequence_number(batch.sequence_number);
  message.set_timestamp(absl::ToDoubleSeconds(batch.time - absl::UnixEpoch()));
  message.set_dp_rank(0);
  if (batch.snapshot.has_value()) {
    ::smg::grpc::common::KvSnapshotChunk& snapshot = *message.mutable_snapshot();
    snapshot.set_index(static_cast<uint32_t>(batch.snapshot->index));
    snapshot.set_count(static_cast<uint32_t>(batch.snapshot->count));
    snapshot.set_blocks(static_cast<uint64_t>(batch.snapshot->blocks));
  }
  for (const KvEvent& from : batch.events) {
    ::smg::grpc::common::KvCacheEvent& event = *message.add_events();
    switch (from.kind) {
      case KvEvent::Kind::kStored:
        FillStored(from, *event.mutable_stored());
        break;
      case KvEvent::Kind::kRemoved:
        for (const auto& block : from.blocks) {
          event.mutable_removed()->add_block_hashes(Signed(block->hash));
        }
        break;
      case KvEvent::Kind::kCleared:
        event.mutable_cleared();
        break;
    }
  }
}

grpc::ServerWriteReactor<Message>* StartKvEventStream(
    grpc::CallbackServerContext* context,
    const ::smg::grpc::common::SubscribeKvEventsRequest& request, const CallServices& services,
    const RpcGate& gate) {
  KvEventLog* log = nullptr;
  CallRecord record =
      AnsweredCall("vllm.SubscribeKvEvents", *context, services, gate,
                   [&log](const RpcContext& rpc, const Principal&) -> absl::Status {
                     log = rpc.engine.kv_events();
                     if (log != nullptr) return absl::OkStatus();
                     return Unimplemented("the prefix cache is off: it has no events");
                   });
  const auto stream = std::make_shared<KvEventStream>(std::move(record));
  stream->Start(log, request.start_sequence_number());
  return stream.get();
}

}  // namespace tlm
