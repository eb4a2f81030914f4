#include "server/net/grpc_listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "model/base/errors.h"
#include "server/net/lingering_close.h"
#include "server/net/tls_certificates.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

// Vanished clients are noticed after a minute; clients may ping every ten seconds, with or without
// streams.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 10'000;
// Limit for TLS and the preface and settings of HTTP/2 on a new connection.
constexpr int kHandshakeTimeoutMs = 10'000;
// Pings above the allowed rate before the connection ends with ENHANCE_YOUR_CALM.
constexpr int kMaxPingStrikes = 2;
// Limit of one call's metadata, as HTTP/2 counts it: enough for trace contexts and credentials.
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kMaxReadBytes = 16 << 10;
// Limit of bytes received and not yet read, over all connections of a port. gRPC receives whole
// messages before the server can check credentials, as many at once as there are streams: without a
// limit, one connection without credentials could take all memory. Near the limit gRPC tightens
// flow control; at the limit it ends calls and connections.
constexpr size_t kMaxReceivedBytes = size_t{512} << 20;

// Time for the statuses of cancelled calls to reach clients that still read.
constexpr absl::Duration kCancelLimit = absl::Milliseconds(200);

// Converts durations for gRPC: whole milliseconds, where the largest value means never.
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<int>::max()));
}

void ConfigureConnections(const ConnectionLimits& connections, const RequestLimits& limits,
                          grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_request_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(limits.max_response_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, connections.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // gRPC notices only between two reads that a connection was cut.
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxReadBytes);
  // Windows do not grow: an upload needs a window update at least once per MiB, which distinguishes
  // it from a flood (FloodDetector).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // gRPC decompresses a whole message before it checks the size, and before the server can check
  // credentials: 4 MiB become 4 GiB. So compressed messages end with UNIMPLEMENTED.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                             1 << GRPC_COMPRESS_NONE);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(connections.max_age));
}

// Reflection comes with its library, for every server of the process.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

// gRPC's messages contain no metadata; its traces do (RouteGrpcLog turns them off). This filter
// guards against anything else that may contain metadata.
bool MayHoldSecret(std::string_view message) {
  std::string text(message);
  absl::AsciiStrToLower(&text);
  constexpr std::string_view kSigns[] = {"authorization", "bearer", "tlm_"};
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&text](std::string_view sign) { return text.find(sign) != text.npos; });
}

// Only at level debug: clients without credentials can cause Protobuf's complaints at any rate.
void LogForProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  spdlog::debug("protobuf: {}", LogQuoted(message));
}

void LogForGrpc(gpr_log_func_args* args) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  spdlog::debug("grpc: {}", MayHoldSecret(args->message) ? "(a line with credentials, left out)"
                                                         : args->message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Open(const ListenerOptions& options,
                                                                 const RequestLimits& limits,
                                                                 const Services& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  TLM_ASSIGN_OR_RETURN(ListeningSockets sockets,
                       ListeningSockets::Open(options.host, options.port));
  std::unique_ptr<GrpcListener> listener(new GrpcListener);
  grpc::ServerBuilder builder;
  ConfigureConnections(options.connections, limits, builder);
  builder.SetResourceQuota(grpc::ResourceQuota().Resize(kMaxReceivedBytes));
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  using Connections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  listener->credentials_ = options.certificates == nullptr
                               ? grpc::InsecureServerCredentials()
                               : MakeTlsServerCredentials(*options.certificates);
  listener->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      Connections::FROM_FD, listener->credentials_);
  for (const NamedService& named : services.services) {
    builder.RegisterService(named.service);
    listener->service_names_.push_back(named.name);
  }
  builder.RegisterCallbackGenericService(services.unknown_calls);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return FailedPrecondition("cannot serve gRPC on {}:{}", options.host, options.port);
  }
  listener->SetServing(false);
  listener->port_ = sockets.port();
  listener->sockets_.emplace(std::move(sockets));
  listener->descriptor_budget_ =
      DescriptorBudget(options.connections.max_connections, options.extra_connections);
  listener->max_streams_ = options.connections.max_concurrent_streams;
  return listener;
}

absl::Status GrpcListener::Listen() {
  TLM_RETURN_IF_ERROR(sockets_->Listen());
  acceptor_ = std::make_unique<ConnectionAcceptor>(*std::move(sockets_), std::move(connections_),
                                                   descriptor_budget_, max_streams_);
  return absl::OkStatus();
}

GrpcListener::~GrpcListener() { Shutdown(absl::ZeroDuration()); }

void GrpcListener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  for (const char* const name : service_names_) health->SetServingStatus(name, serving);
}

void GrpcListener::StopListening() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (sockets_.has_value()) sockets_->Close();
}

void GrpcListener::Withdraw() {
  if (server_ == nullptr || all_calls_over_.valid()) return;
  StopListening();
  // Shutdown returns when the last call has ended; its limit could not be changed later.
  all_calls_over_ = std::async(std::launch::async, [this] { server_->Shutdown(); });
}

void GrpcListener::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  Withdraw();
  const auto over_within = [this](absl::Duration limit) {
    return all_calls_over_.wait_for(absl::ToChronoMilliseconds(limit)) == std::future_status::ready;
  };
  if (!over_within(grace)) {
    grpc_server_cancel_all_calls(server_->c_server());
    // gRPC 1.51 does not close a connection during a write to it, and the write never ends if the
    // client does not read.
    if (!over_within(kCancelLimit) && acceptor_ != nullptr) {
      acceptor_->CutConnections();
      // A thread of gRPC waits up to 10 s for such a write, and the shutdown of the library waits
      // for the thread. So this reference keeps the library alive until the process ends.
      grpc_init();
    }
  }
  all_calls_over_.wait();
  server_->Wait();
  // The end of the process would close what clients may not have read yet.
  if (acceptor_ != nullptr) LingeringClose::OfProcess().AwaitAll();
}

void RouteGrpcLog() {
  gpr_set_log_function(LogForGrpc);
  google::protobuf::SetLogHandler(LogForProtobuf);
  // With GRPC_TRACE in the environment gRPC would write out metadata, and the bytes of connections.
  grpc_init();
  grpc_tracer_set_enabled("all", 0);
  grpc_shutdown();
}

void DropGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace tlm
