// Calls a tlm server. Link `tlm_client`; outside this project `tlm::client`, and include
// "tlm/client/client.h" (client/README.md).
//
//   auto client = tlm::client::Client::Connect("127.0.0.1:50051");
//   if (!client.ok()) ...
//   tlm::v1::GenerateRequest request;
//   request.set_prompt("Once upon a time");
//   absl::Status status = (*client)->Generate(request, [](const tlm::v1::GenerateResponse& event) {
//     std::cout << event.tokens().text() << std::flush;
//   });
//
// A failed call returns the server's code and message; DetailsOf (status.h) has the rest.
//
// A client may have several targets: replicas that serve the same model. Calls are spread over them
// round robin, past those that failed within the last second; Generate calls by what they begin
// with if ClientOptions::balance says so. Generate goes on elsewhere when its replica dies
// (generate_stream.h); a unary call that is UNAVAILABLE is made once on each target;
// Forward is not repeated. Otherwise nothing is retried: a caller knows best whether a refused
// request is still wanted after retry_delay.
#ifndef TLM_CLIENT_CPP_CLIENT_H_
#define TLM_CLIENT_CPP_CLIENT_H_

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/balance.h"
#include "client/cpp/call_options.h"
#include "client/cpp/channel.h"
#include "client/cpp/conversation.h"
#include "client/cpp/forward_collector.h"
#include "client/cpp/generate_collector.h"
#include "client/cpp/generate_stream.h"
#include "client/cpp/server_stream.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::client {

class TargetPicker;

using ForwardStream = ServerStream<v1::ForwardResponse>;
using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

// Thread-safe: any number of calls at a time. Keep one for the life of the program; its streams end
// before it.
class Client {
 public:
  // Connects when first used, so a server that is down shows in the first call. Errors as
  // MakeChannel.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         const ClientOptions& options = {});
  // To replicas of one model. INVALID_ARGUMENT without any.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::vector<std::string>& targets,
                                                         const ClientOptions& options = {});

  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::initializer_list<std::string> targets,
                                                         const ClientOptions& options = {}) {
    return Connect(std::vector<std::string>(targets), options);
  }

  ~Client();

  // As given to Connect.
  const std::vector<std::string>& targets() const { return targets_; }

  // The events one by one.
  std::unique_ptr<GenerateStream> StartGenerate(const v1::GenerateRequest& request,
                                                const CallOptions& options = {});
  // Calls `on_event` in this thread for each event as it comes; returns how the call ended.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_event,
                        const CallOptions& options = {});
  // The whole answer at once. INTERNAL when the server contradicts itself.
  absl::StatusOr<GenerateResult> Generate(const v1::GenerateRequest& request,
                                          const CallOptions& options = {});

  // The messages one by one.
  std::unique_ptr<ForwardStream> StartForward(const v1::ForwardRequest& request,
                                              const CallOptions& options = {});
  // All rows at once, as floats whatever the request's dtype. INTERNAL when the server contradicts
  // itself, RESOURCE_EXHAUSTED beyond `max_values` floats.
  absl::StatusOr<ForwardResult> Forward(const v1::ForwardRequest& request,
                                        const CallOptions& options = {},
                                        size_t max_values = size_t{1} << 30);

  absl::StatusOr<v1::ModelInfoResponse> ModelInfo(const v1::ModelInfoRequest& request = {},
                                                  const CallOptions& options = {});
  // One score for each of the request's continuations, in its order. INTERNAL when the server
  // contradicts that.
  absl::StatusOr<v1::ScoreResponse> Score(const v1::ScoreRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                const CallOptions& options = {});
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    const CallOptions& options = {});

  // The health of a service, by its full name, on one of the targets; empty = the server as a
  // whole. NOT_FOUND for a service the server does not know.
  absl::StatusOr<ServingStatus> Health(const std::string& service = "",
                                       const CallOptions& options = {});
  // Returns OK once the service is SERVING on one of the targets. DEADLINE_EXCEEDED after
  // options.timeout, CANCELLED, or what the server says if it has no health service.
  absl::Status WaitUntilServing(const std::string& service, const CallOptions& options);

 private:
  struct Replica {
    std::unique_ptr<v1::LanguageModel::Stub> model;
    std::unique_ptr<grpc::health::v1::Health::Stub> health;
  };

  Client(std::vector<std::string> targets, std::vector<Replica> replicas, std::string authorization,
         Balance balance);

  // One Health.Watch call, until SERVING (true) or its end.
  absl::StatusOr<bool> WatchUntilServing(const std::string& service, const CallOptions& options);

  // A unary call of the stub that `stub` points to in a replica.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(std::unique_ptr<Stub> Replica::*stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, const CallOptions& options);

  const std::vector<std::string> targets_;
  const std::vector<Replica> replicas_;  // one a target
  const std::string authorization_;      // metadata value; empty = none
  const Balance balance_;
  const std::unique_ptr<TargetPicker> picker_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CLIENT_H_
