// Serves xds.service.orca.v3.OpenRcaService: load reports outside of calls.
#ifndef TLM_SERVER_RPC_LOAD_LOAD_SERVICE_H_
#define TLM_SERVER_RPC_LOAD_LOAD_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace tlm {

// The request is raw: it is parsed once the credentials are checked.
using LoadServiceMethods =
    xds::service::orca::v3::OpenRcaService::WithRawCallbackMethod_StreamCoreMetrics<
        xds::service::orca::v3::OpenRcaService::Service>;

// Thread-safe: gRPC calls it from its threads. Its streams are neither logged nor counted as
// requests, unless they are refused. A slow reader gets fewer reports.
class LoadService final : public LoadServiceMethods {
 public:
  // The most streams at a time; further ones end with RESOURCE_EXHAUSTED. They also count for
  // StreamLimit.
  static constexpr int64_t kMaxStreams = 4096;
  static constexpr absl::Duration kMinInterval = absl::Seconds(1);

  // The objects in `services` and `gate` outlive the service and its calls. Until the gate is open
  // all calls end with UNAVAILABLE, reason STARTING.
  LoadService(const CallServices& services, const RpcGate& gate)
      : services_(services), gate_(gate) {}

  // Ends all streams with UNAVAILABLE, reason DRAINING.
  void EndStreams();

  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamCoreMetrics(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

 private:
  // Counts the stream that begins and returns its interval, or says why the call is refused.
  absl::StatusOr<absl::Duration> Admit(const CallRecord& record, const RpcContext* rpc,
                                       const grpc::ByteBuffer& request);

  const CallServices services_;
  const RpcGate& gate_;
  CallRegistry streams_;
  std::atomic<int64_t> count_{0};
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LOAD_LOAD_SERVICE_H_
