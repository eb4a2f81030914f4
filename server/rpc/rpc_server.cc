#include "server/rpc/rpc_server.h"

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

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& host, int port,
                                                            const RpcContext& rpc) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<RpcServer> server(new RpcServer(rpc));
  grpc::ServerBuilder builder;
  ConfigureConnections(rpc.model.limits, builder);
  builder.AddListeningPort(Address(host, port), grpc::InsecureServerCredentials(), &server->port_);
  builder.RegisterService(&server->service_);
  builder.RegisterCallbackGenericService(&server->unknown_calls_);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    return FailedPrecondition("cannot listen on {}: the port is in use or not allowed",
                              Address(host, port));
  }
  server->SetServing(false);
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(v1::LanguageModel::service_full_name(), serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

void RouteGrpcLog() { gpr_set_log_function(LogForGrpc); }

}  // namespace tlm
