// Implements the common part of server-streaming calls: one write at a time, and one end.
#ifndef TLM_SERVER_RPC_CALL_STREAMING_CALL_H_
#define TLM_SERVER_RPC_CALL_STREAMING_CALL_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/status.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/pending_call.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {

// A reactor that owns everything of one call: see PendingCall. Each wake-up, and each completed
// write, asks Next() for the next step. With a slow reader a write stays in flight. Results are
// then collected until the call IsAfter(); later ones stay in the token stream, and the sequence is
// parked when the stream is full.
template <typename Response>
class StreamingCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public PendingCall {
 protected:
  using PendingCall::PendingCall;

  // The next step: a message in `message`, nothing yet, or the end with a status.
  struct NextStep {
    enum class Kind { kNothing, kMessage, kEnd } kind = Kind::kNothing;
    absl::Status status;

    static NextStep Nothing() { return {}; }
    static NextStep Message() { return {Kind::kMessage, absl::OkStatus()}; }
    static NextStep End(absl::Status status) { return {Kind::kEnd, std::move(status)}; }
  };

  // Called only while no write is in flight.
  virtual NextStep Next(Response& message) TLM_REQUIRES(mutex_) = 0;
  // Collects results. Called at every wake-up; while a write is in flight or the request is being
  // read, only until IsAfter().
  virtual void Collect() TLM_REQUIRES(mutex_) = 0;
  // Returns true when enough results wait to be written; no more are collected then.
  virtual bool IsAfter() const TLM_REQUIRES(mutex_) = 0;
  // Returns whether the status of a call without a message follows headers, like the status of a
  // stream that fails later; otherwise see ReturnTrace.
  virtual bool FailsAsStream(const absl::Status& /*status*/) const { return false; }

 private:
  void Pump() override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cut(CancelledStatus); }
  void OnDone() override { Done(); }

  // Filled by Next(), then written as bytes, which gRPC owns during the write.
  Response message_;
  grpc::ByteBuffer written_;
  bool writing_ TLM_GUARDED_BY(mutex_) = false;
};

template <typename Response>
void StreamingCall<Response>::Pump() {
  NextStep step;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    const bool waits = writing_ || reading_;
    if (!ending_.has_value() && !(waits && IsAfter())) Collect();
    if (waits) return;
    if (ending_.has_value()) {
      step = NextStep::End(*ending_);
    } else {
      message_.Clear();
      step = Next(message_);
    }
    writing_ = step.kind == NextStep::Kind::kMessage;
    if (writing_ && !record_.first_write.has_value()) {
      record_.first_write = record_.clock->Now();
      ReturnTrace(*context_, record_);
    }
    if (step.kind == NextStep::Kind::kEnd) {
      if (!record_.first_write.has_value() && FailsAsStream(step.status)) {
        ReturnTrace(*context_, record_);
      }
      SetEnd(step.status);
    }
  }
  // Outside the lock: writing_ or finished_ keeps other threads from getting here.
  if (step.kind == NextStep::Kind::kMessage) {
    PutMessage(message_, written_);
    this->StartWrite(&written_);
  }
  if (step.kind == NextStep::Kind::kEnd) this->Finish(ToGrpcStatus(step.status));
}

template <typename Response>
void StreamingCall<Response>::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    // The stream is broken; OnCancel comes or came.
    if (!ok && !ending_.has_value()) ending_ = CancelledStatus(record_);
  }
  Pump();
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_STREAMING_CALL_H_
