// Sends the spans of calls to an OpenTelemetry collector.
#ifndef TLM_SERVER_RPC_OTLP_OTLP_EXPORTER_H_
#define TLM_SERVER_RPC_OTLP_OTLP_EXPORTER_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/config/service_options.h"
#include "server/observe/metrics.h"
#include "server/rpc/call/call_record.h"

namespace tlm {

// Sends batches of spans with opentelemetry.proto.collector.trace.v1.TraceService.Export, from a
// queue that calls never wait for: spans that do not fit are lost, and counted. Thread-safe, except
// for Stop.
class OtlpExporter final : public CallObserver {
 public:
  // Limits in calls, each with its spans: about 4 KiB per call.
  static constexpr size_t kMaxQueuedCalls = 4096;
  static constexpr size_t kMaxBatchCalls = 512;

  struct Timing {
    absl::Duration gather = absl::Seconds(1);  // wait before a batch that is not full
    absl::Duration export_timeout = absl::Seconds(10);
    absl::Duration first_retry = absl::Seconds(1);  // doubles with each retry
    absl::Duration longest_retry = absl::Seconds(10);
    absl::Duration give_up = absl::Minutes(1);  // after this time of trying, a batch is lost
  };

  // Maps CallRecord::rpc to "package.Service/Call". Thread-safe.
  using MethodNames = std::function<std::string(std::string_view rpc)>;

  // Needs options.endpoint; does not wait for a connection. `version` is the server's; `metrics`
  // outlives the exporter. FAILED_PRECONDITION names a CA file that cannot be used.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(const OtlpOptions& options,
                                                             std::string_view version,
                                                             MethodNames methods,
                                                             Metrics& metrics) {
    return Start(options, version, std::move(methods), metrics, Timing());
  }
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(const OtlpOptions& options,
                                                             std::string_view version,
                                                             MethodNames methods, Metrics& metrics,
                                                             const Timing& timing);
  // Calls Stop with no time left.
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Samples options.sample_ratio of the traces, by the trace's id: all servers decide alike.
  bool Samples(const TraceContext& trace) const override;
  // Queues the spans of a sampled call with sufficient credentials; any client can make other
  // calls.
  void OnCallEnd(const CallRecord& record, const CallSummary& summary) override;

  // Sends the queued spans, for at most `limit` and without retries; the rest is lost. Idempotent.
  void Stop(absl::Duration limit);

 private:
  using Spans = std::vector<opentelemetry::proto::trace::v1::Span>;
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  using Response = opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
  using TraceService = opentelemetry::proto::collector::trace::v1::TraceService;

  OtlpExporter(const OtlpOptions& options, std::string_view version, MethodNames methods,
               Metrics& metrics, const Timing& timing,
               const std::shared_ptr<grpc::Channel>& channel);
  void Run();
  // Waits for calls, moves their spans into `request` and returns the number of spans. 0: the end.
  int64_t TakeBatch(Request& request);
  // Returns once the batch is accepted, refused or lost.
  void Send(const Request& request, int64_t spans);
  grpc::Status TryOnce(const Request& request, Response& response);
  // Returns false if no further attempt is to follow; the first attempt began at `since`.
  bool WaitToRetry(absl::Time since, absl::Duration delay);
  void Accepted(const Response& response, int64_t spans);
  // Logs the first of several faults in a row, and the end of the series.
  void NoteFault(const std::string& fault);

  const OtlpOptions options_;
  const MethodNames methods_;
  Metrics& metrics_;
  const Timing timing_;
  opentelemetry::proto::trace::v1::ResourceSpans origin_;  // copied into every batch; has no spans
  const std::unique_ptr<TraceService::Stub> stub_;
  // Used by the exporter thread only.
  bool faulty_ = false;
  bool gone_ = false;  // an export failed while stopping; nothing more is sent
  absl::BitGen random_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Spans> queue_ TLM_GUARDED_BY(mutex_);
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  absl::Time stop_by_ TLM_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  grpc::ClientContext* running_ TLM_GUARDED_BY(mutex_) = nullptr;  // the running export
  bool done_ TLM_GUARDED_BY(mutex_) = false;                       // the thread is about to end
  std::thread thread_;                                             // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OTLP_OTLP_EXPORTER_H_
