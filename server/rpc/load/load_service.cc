#include "server/rpc/load/load_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/deadline_timer.h"
#include "server/rpc/call/load_reporter.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/convert/proto_time.h"

namespace tlm {
namespace {

// Writes a report, pauses, writes a report, and so on. gRPC owns it until OnDone, and its timer
// while that fires.
class LoadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public AbortableCall,
                         public std::enable_shared_from_this<LoadStream> {
 public:
  // `load` and `count`, which counts this stream, outlive it.
  LoadStream(LoadReporter& load, absl::Duration interval, std::atomic<int64_t>& count)
      : load_(load), interval_(interval), count_(count) {}
  ~LoadStream() override { --count_; }

  void Start(CallRegistry& streams) {
    self_ = shared_from_this();
    {
      MutexLock lock(&mutex_);
      registration_ = streams.Register("", "", weak_from_this());
    }
    Write();
  }

  // Called when the next report is due.
  void OnDeadline() { Write(); }

  bool Abort(const absl::Status& status) override {
    {
      MutexLock lock(&mutex_);
      if (ending_.has_value()) return false;
      ending_ = status;
      if (writing_) return true;  // OnWriteDone ends it
    }
    Finish(ToGrpcStatus(status));
    return true;
  }

 private:
  void Write() {
    {
      MutexLock lock(&mutex_);
      if (ending_.has_value()) return;
      writing_ = true;
    }
    const grpc::Slice report(load_.Serialized());
    written_ = grpc::ByteBuffer(&report, 1);
    StartWrite(&written_);
  }

  void OnWriteDone(bool ok) override {
    std::optional<absl::Status> end;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok && !ending_.has_value()) ending_ = Cancelled("the stream is broken");
      end = ending_;
      if (!end.has_value()) timer_.Start(interval_, weak_from_this());
    }
    if (end.has_value()) Finish(ToGrpcStatus(*end));
  }

  void OnCancel() override { Abort(Cancelled("the client cancelled the call")); }

  void OnDone() override {
    const std::shared_ptr<LoadStream> last = std::move(self_);
    MutexLock lock(&mutex_);
    registration_ = CallRegistry::Registration();
  }

  LoadReporter& load_;
  const absl::Duration interval_;
  std::atomic<int64_t>& count_;
  // Owns itself until OnDone, because gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<LoadStream> self_;
  grpc::ByteBuffer written_;  // owned by gRPC during a write
  Mutex mutex_;
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  DeadlineTimer timer_ TLM_GUARDED_BY(mutex_);
  bool writing_ TLM_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> ending_ TLM_GUARDED_BY(mutex_);
};

absl::StatusOr<absl::Duration> IntervalOf(const grpc::ByteBuffer& bytes) {
  xds::service::orca::v3::OrcaLoadReportRequest request;
  TLM_RETURN_IF_ERROR(TakeMessage(bytes, request));
  TLM_ASSIGN_OR_RETURN(const absl::Duration interval,
                       ReadDuration("report_interval", request.report_interval()));
  return std::max(interval, LoadService::kMinInterval);
}

}  // namespace

void LoadService::EndStreams() {
  streams_.AbortAll(std::nullopt,
                    WithReason(Unavailable("the server is shutting down"), "DRAINING"));
}

absl::StatusOr<absl::Duration> LoadService::Admit(const CallRecord& record, const RpcContext* rpc,
                                                  const grpc::ByteBuffer& request) {
  TLM_RETURN_IF_ERROR(record.access);
  if (rpc == nullptr) return StartingStatus();
  TLM_ASSIGN_OR_RETURN(const absl::Duration interval, IntervalOf(request));
  if (++count_ > kMaxStreams) {
    --count_;
    return ResourceExhausted("{} streams of load reports are open, the limit is {}", kMaxStreams,
                             kMaxStreams);
  }
  return interval;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* LoadService::StreamCoreMetrics(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (!request->Valid()) return new RefusedStream(WithoutMessage());
  CallRecord record = BeginCall("StreamCoreMetrics", Role::kInference, *context, services_);
  const RpcContext* const rpc = gate_.Get();
  const absl::StatusOr<absl::Duration> interval = Admit(record, rpc, *request);
  if (!interval.ok()) {
    record.status = interval.status();
    return new RefusedStream(record);
  }
  ReturnTrace(*context, record);
  const auto stream = std::make_shared<LoadStream>(rpc->load, *interval, count_);
  stream->Start(streams_);
  return stream.get();
}

}  // namespace tlm
