#include "client/cpp/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "client/cpp/client_context.h"
#include "client/cpp/status.h"
#include "client/cpp/target_picker.h"

namespace tlm::client {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target,
                                                        const ClientOptions& options) {
  return Connect(std::vector<std::string>{target}, options);
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::vector<std::string>& targets,
                                                        const ClientOptions& options) {
  if (targets.empty()) return absl::InvalidArgumentError("there is no target");
  std::vector<Replica> replicas;
  for (const std::string& target : targets) {
    const auto channel = MakeChannel(target, options);
    if (!channel.ok()) return channel.status();
    replicas.push_back(
        {v1::LanguageModel::NewStub(*channel), grpc::health::v1::Health::NewStub(*channel)});
  }
  // The constructor is private, and make_unique cannot call it.
  return std::unique_ptr<Client>(
      new Client(targets, std::move(replicas), AuthorizationOf(options), options.balance));
}

Client::Client(std::vector<std::string> targets, std::vector<Replica> replicas,
               std::string authorization, Balance balance)
    : targets_(std::move(targets)),
      replicas_(std::move(replicas)),
      authorization_(std::move(authorization)),
      balance_(balance),
      picker_(std::make_unique<TargetPicker>(targets_)) {}

Client::~Client() = default;

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::Call(std::unique_ptr<Stub> Replica::*stub,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                                      const Request& request, const CallOptions& options) {
  const absl::Time deadline = MonotonicNow() + options.timeout;
  std::set<size_t> tried;
  grpc::Status status;
  while (const std::optional<size_t> target = picker_->Next(MonotonicNow(), tried)) {
    CallOptions attempt = options;
    attempt.timeout = deadline - MonotonicNow();
    // Waits only for the last target.
    attempt.wait_for_ready = options.wait_for_ready && tried.size() + 1 == replicas_.size();
    const std::unique_ptr<grpc::ClientContext> context = MakeContext(attempt, authorization_);
    const CancelToken::Registration registration(options.cancel, context.get());
    Response response;
    status = ((replicas_[*target].*stub).get()->*method)(context.get(), request, &response);
    if (status.ok()) return response;
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
    picker_->MarkFailed(*target, MonotonicNow());
    tried.insert(*target);
  }
  return FromGrpcStatus(status);
}

std::unique_ptr<GenerateStream> Client::StartGenerate(const v1::GenerateRequest& request,
                                                      const CallOptions& options) {
  std::optional<uint64_t> affinity;
  if (balance_ == Balance::kPrefixAffinity) affinity = AffinityOf(request, options.affinity_key);
  return std::make_unique<GenerateStream>(
      request, options, picker_.get(), affinity,
      [this](size_t target, const v1::GenerateRequest& to_send, const CallOptions& call_options) {
        return std::make_unique<GenerateStream::Call>(
            MakeContext(call_options, authorization_), call_options.cancel,
            [&](grpc::ClientContext* context) {
              return replicas_[target].model->Generate(context, to_send);
            });
      });
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
  const size_t target = *picker_->Next(MonotonicNow());
  return std::make_unique<ForwardStream>(
      MakeContext(options, authorization_), options.cancel, [&](grpc::ClientContext* context) {
        return replicas_[target].model->Forward(context, request);
      });
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
  return Call(&Replica::model, &v1::LanguageModel::Stub::ModelInfo, request, options);
}

absl::StatusOr<v1::ScoreResponse> Client::Score(const v1::ScoreRequest& request,
                                                const CallOptions& options) {
  auto response = Call(&Replica::model, &v1::LanguageModel::Stub::Score, request, options);
  if (response.ok() && response->scores_size() != request.continuations_size()) {
    return absl::InternalError(fmt::format("the server sent {} scores for {} continuations",
                                           response->scores_size(), request.continuations_size()));
  }
  return response;
}

absl::StatusOr<v1::VerifyResponse> Client::Verify(const v1::VerifyRequest& request,
                                                  const CallOptions& options) {
  return Call(&Replica::model, &v1::LanguageModel::Stub::Verify, request, options);
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request,
                                                      const CallOptions& options) {
  return Call(&Replica::model, &v1::LanguageModel::Stub::Tokenize, request, options);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request,
                                                          const CallOptions& options) {
  return Call(&Replica::model, &v1::LanguageModel::Stub::Detokenize, request, options);
}

absl::StatusOr<ServingStatus> Client::Health(const std::string& service,
                                             const CallOptions& options) {
  HealthCheckRequest request;
  request.set_service(service);
  const auto response =
      Call(&Replica::health, &grpc::health::v1::Health::Stub::Check, request, options);
  if (!response.ok()) return response.status();
  return response->status();
}

absl::Status Client::WaitUntilServing(const std::string& service, const CallOptions& options) {
  // The pause between two attempts: a watch ends when the server restarts.
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  const absl::Time deadline = MonotonicNow() + options.timeout;
  CancelToken never;
  CancelToken* cancel = options.cancel != nullptr ? options.cancel : &never;
  while (true) {
    CallOptions attempt = options;
    attempt.wait_for_ready = replicas_.size() == 1;
    attempt.timeout = deadline - MonotonicNow();
    const absl::StatusOr<bool> serving = WatchUntilServing(service, attempt);
    if (serving.ok() && *serving) return absl::OkStatus();
    if (MonotonicNow() >= deadline || absl::IsDeadlineExceeded(serving.status())) {
      return absl::DeadlineExceededError(
          fmt::format("not serving after {}", absl::FormatDuration(options.timeout)));
    }
    if (!serving.ok() && !absl::IsUnavailable(serving.status())) return serving.status();
    if (cancel->WaitFor(std::min(kPause, deadline - MonotonicNow()))) {
      return absl::CancelledError("cancelled");
    }
  }
}

absl::StatusOr<bool> Client::WatchUntilServing(const std::string& service,
                                               const CallOptions& options) {
  HealthCheckRequest request;
  request.set_service(service);
  const size_t target = *picker_->Next(MonotonicNow());
  ServerStream<HealthCheckResponse> stream(
      MakeContext(options, authorization_), options.cancel, [&](grpc::ClientContext* context) {
        return replicas_[target].health->Watch(context, request);
      });
  HealthCheckResponse response;
  while (stream.Read(&response)) {
    if (response.status() == HealthCheckResponse::SERVING) return true;
  }
  if (absl::Status status = stream.Finish(); !status.ok()) return status;
  return false;
}

}  // namespace tlm::client
