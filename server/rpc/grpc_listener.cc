#include "server/rpc/grpc_listener.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <chrono>

#include "model/base/errors.h"

namespace tlm {
namespace {

// Clients that are gone without a word are noticed after a minute; their own pings are welcome down
// to one in ten seconds, streams or not.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 10'000;
// Of one connection; more wait on the client's side.
constexpr int kMaxConcurrentStreams = 1024;

void ConfigureConnections(const RequestLimits& limits, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_request_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(limits.max_response_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  // Two servers on one port would share its connections unnoticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::string Address(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

void LogForGrpc(gpr_log_func_args* args) { spdlog::debug("grpc: {}", args->message); }

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Open(const std::string& host, int port,
                                                                 const RequestLimits& limits,
                                                                 const Services& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcListener> listener(new GrpcListener(services.name));
  grpc::ServerBuilder builder;
  ConfigureConnections(limits, builder);
  builder.AddListeningPort(Address(host, port), grpc::InsecureServerCredentials(),
                           &listener->port_);
  builder.RegisterService(services.service);
  builder.RegisterCallbackGenericService(services.unknown_calls);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || listener->port_ == 0) {
    return FailedPrecondition("cannot listen on {}: the port is in use or not allowed",
                              Address(host, port));
  }
  listener->SetServing(false);
  return listener;
}

GrpcListener::~GrpcListener() { Shutdown(absl::ZeroDuration()); }

void GrpcListener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(service_name_, serving);
}

void GrpcListener::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

void RouteGrpcLog() { gpr_set_log_function(LogForGrpc); }

}  // namespace tlm
