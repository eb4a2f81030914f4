#include "client/cpp/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cpp/status.h"

namespace tlm::client {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target,
                                                        const ClientOptions& options) {
  auto channel = MakeChannel(target, options);
  if (!channel.ok()) return channel.status();
  std::string authorization;
  if (!options.api_key.empty()) authorization = fmt::format("Bearer {}", options.api_key);
  // The constructor is private, out of make_unique's reach.
  return std::unique_ptr<Client>(new Client(*channel, std::move(authorization)));
}

Client::Client(const std::shared_ptr<grpc::Channel>& channel, std::string authorization)
    : authorization_(std::move(authorization)),
      model_(v1::LanguageModel::NewStub(channel)),
      health_(grpc::health::v1::Health::NewStub(channel)) {}

std::unique_ptr<grpc::ClientContext> Client::NewContext(const CallOptions& options) const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (options.timeout < absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  }
  context->set_wait_for_ready(options.wait_for_ready);
  if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
  for (const auto& [key, value] : options.metadata) context->AddMetadata(key, value);
  return context;
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::Call(Stub* stub,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                                      const Request& request, const CallOptions& options) const {
  const std::unique_ptr<grpc::ClientContext> context = NewContext(options);
  const CancelToken::Registration registration(options.cancel, context.get());
  Response response;
  const grpc::Status status = (stub->*method)(context.get(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

std::unique_ptr<GenerateStream> Client::StartGenerate(const v1::GenerateRequest& request,
                                                      const CallOptions& options) {
  return std::make_unique<GenerateStream>(
      NewContext(options), options.cancel,
      [&](grpc::ClientContext* context) { return model_->Generate(context, request); });
}

absl::Status Client::Generate(const v1::GenerateRequest& request,
                              const std::function<void(const v1::GenerateResponse&)>& on_event,
                              const CallOptions& options) {
  const auto stream = StartGenerate(request, options);
  v1::GenerateResponse event;
  while (stream->Read(&event)) on_event(event);
  return stream->Finish();
}

absl::StatusOr<GenerateResult> Client::Generate(const v1::GenerateRequest& request,
                                                const CallOptions& options) {
  const auto stream = StartGenerate(request, options);
  GenerateCollector collector;
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    if (absl::Status status = collector.Add(std::move(event)); !status.ok()) return status;
  }
  if (absl::Status status = stream->Finish(); !status.ok()) return status;
  if (absl::Status status = collector.CheckComplete(); !status.ok()) return status;
  return collector.TakeResult();
}

std::unique_ptr<ForwardStream> Client::StartForward(const v1::ForwardRequest& request,
                                                    const CallOptions& options) {
  return std::make_unique<ForwardStream>(
      NewContext(options), options.cancel,
      [&](grpc::ClientContext* context) { return model_->Forward(context, request); });
}

absl::StatusOr<ForwardResult> Client::Forward(const v1::ForwardRequest& request,
                                              const CallOptions& options, size_t max_values) {
  const auto stream = StartForward(request, options);
  ForwardCollector collector(max_values);
  v1::ForwardResponse response;
  while (stream->Read(&response)) {
    if (absl::Status status = collector.Add(std::move(response)); !status.ok()) return status;
  }
  if (absl::Status status = stream->Finish(); !status.ok()) return status;
  if (absl::Status status = collector.CheckComplete(); !status.ok()) return status;
  return collector.TakeResult();
}

absl::StatusOr<v1::ModelInfoResponse> Client::ModelInfo(const v1::ModelInfoRequest& request,
                                                        const CallOptions& options) {
  return Call(model_.get(), &v1::LanguageModel::Stub::ModelInfo, request, options);
}

absl::StatusOr<v1::ScoreResponse> Client::Score(const v1::ScoreRequest& request,
                                                const CallOptions& options) {
  auto response = Call(model_.get(), &v1::LanguageModel::Stub::Score, request, options);
  if (response.ok() && response->scores_size() != request.continuations_size()) {
    return absl::InternalError(fmt::format("the server sent {} scores for {} continuations",
                                           response->scores_size(), request.continuations_size()));
  }
  return response;
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      const CallOptions& options) {
  return Call(model_.get(), &v1::LanguageModel::Stub::Tokenize, request, options);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                          const CallOptions& options) {
  return Call(model_.get(), &v1::LanguageModel::Stub::Detokenize, request, options);
}

absl::StatusOr<ServingStatus> Client::Health(const std::string& service,
                                             const CallOptions& options) {
  HealthCheckRequest request;
  request.set_service(service);
  const auto response =
      Call(health_.get(), &grpc::health::v1::Health::Stub::Check, request, options);
  if (!response.ok()) return response.status();
  return response->status();
}

absl::Status Client::WaitUntilServing(const std::string& service, const CallOptions& options) {
  // Time between two attempts when a watch ends, as it does when the server restarts.
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  const absl::Time deadline = absl::Now() + options.timeout;
  CancelToken never;
  const CancelToken* cancel = options.cancel != nullptr ? options.cancel : &never;
  while (true) {
    CallOptions attempt = options;
    attempt.wait_for_ready = true;
    attempt.timeout = deadline - absl::Now();
    const absl::StatusOr<bool> serving = WatchUntilServing(service, attempt);
    if (serving.ok() && *serving) return absl::OkStatus();
    if (absl::Now() >= deadline || absl::IsDeadlineExceeded(serving.status())) {
      return absl::DeadlineExceededError(
          fmt::format("not serving after {}", absl::FormatDuration(options.timeout)));
    }
    if (!serving.ok() && !absl::IsUnavailable(serving.status())) return serving.status();
    if (cancel->WaitFor(std::min(kPause, deadline - absl::Now()))) {
      return absl::CancelledError("cancelled");
    }
  }
}

absl::StatusOr<bool> Client::WatchUntilServing(const std::string& service,
                                               const CallOptions& options) {
  HealthCheckRequest request;
  request.set_service(service);
  ServerStream<HealthCheckResponse> stream(
      NewContext(options), options.cancel,
      [&](grpc::ClientContext* context) { return health_->Watch(context, request); });
  HealthCheckResponse response;
  while (stream.Read(&response)) {
    if (response.status() == HealthCheckResponse::SERVING) return true;
  }
  if (absl::Status status = stream.Finish(); !status.ok()) return status;
  return false;
}

}  // namespace tlm::client
