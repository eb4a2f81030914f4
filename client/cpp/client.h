// The client of tlm servers. Link `tlm_client`; outside this project link `tlm::client` and include
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
// A client may have several targets: replicas of one model. Calls go to them round robin, skipping
// targets that failed within the last second; Generate calls go by their prefix if
// ClientOptions::balance says so. Generate continues on another replica when its own dies
// (generate_stream.h); a unary call is tried once on each target while it is UNAVAILABLE; Forward
// is not repeated. Refused requests are not retried: the application decides after retry_delay.
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

// Thread-safe. Keep one for the life of the program; it must outlive its streams.
class Client {
 public:
  // Connects on first use: a server that is down fails the first call. Returns the errors of
  // MakeChannel.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         const ClientOptions& options = {});
  // Connects to replicas of one model. INVALID_ARGUMENT without any.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::vector<std::string>& targets,
                                                         const ClientOptions& options = {});

  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::initializer_list<std::string> targets,
                                                         const ClientOptions& options = {}) {
    return Connect(std::vector<std::string>(targets), options);
  }

  ~Client();

  // Returns the targets as passed to Connect.
  const std::vector<std::string>& targets() const { return targets_; }

  // Returns the events one by one.
  std::unique_ptr<GenerateStream> StartGenerate(const v1::GenerateRequest& request,
                                                const CallOptions& options = {});
  // Calls `on_event` in this thread for each event; returns the status of the call.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_event,
                        const CallOptions& options = {});
  // Returns the whole answer. INTERNAL if the events are inconsistent.
  absl::StatusOr<GenerateResult> Generate(const v1::GenerateRequest& request,
                                          const CallOptions& options = {});

  // Returns the messages one by one.
  std::unique_ptr<ForwardStream> StartForward(const v1::ForwardRequest& request,
                                              const CallOptions& options = {});
  // Returns all rows as floats for any dtype of the request. INTERNAL if the messages are
  // inconsistent, RESOURCE_EXHAUSTED beyond `max_values` floats.
  absl::StatusOr<ForwardResult> Forward(const v1::ForwardRequest& request,
                                        const CallOptions& options = {},
                                        size_t max_values = size_t{1} << 30);

  absl::StatusOr<v1::ModelInfoResponse> ModelInfo(const v1::ModelInfoRequest& request = {},
                                                  const CallOptions& options = {});
  // Returns one score per continuation, in order; INTERNAL for another number.
  absl::StatusOr<v1::ScoreResponse> Score(const v1::ScoreRequest& request,
                                          const CallOptions& options = {});
  // Checks whether the request gives the claimed tokens: see ClaimOf. A mismatch is an answer, not
  // an error.
  absl::StatusOr<v1::VerifyResponse> Verify(const v1::VerifyRequest& request,
                                            const CallOptions& options = {});
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                const CallOptions& options = {});
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                    const CallOptions& options = {});

  // Returns the health of a service, by its full name, on one of the targets; an empty name is the
  // whole server. NOT_FOUND for an unknown service.
  absl::StatusOr<ServingStatus> Health(const std::string& service = "",
                                       const CallOptions& options = {});
  // Returns OK once the service is SERVING on one of the targets. DEADLINE_EXCEEDED after
  // options.timeout, CANCELLED, or the error of a server without health service.
  absl::Status WaitUntilServing(const std::string& service, const CallOptions& options);

 private:
  struct Replica {
    std::unique_ptr<v1::LanguageModel::Stub> model;
    std::unique_ptr<grpc::health::v1::Health::Stub> health;
  };

  Client(std::vector<std::string> targets, std::vector<Replica> replicas, std::string authorization,
         Balance balance);

  // Runs one Health.Watch call until SERVING (true) or its end (false).
  absl::StatusOr<bool> WatchUntilServing(const std::string& service, const CallOptions& options);

  // Makes a unary call with the member `stub` of a replica.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(std::unique_ptr<Stub> Replica::*stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, const CallOptions& options);

  const std::vector<std::string> targets_;
  const std::vector<Replica> replicas_;  // one per target
  const std::string authorization_;      // metadata value; empty = none
  const Balance balance_;
  const std::unique_ptr<TargetPicker> picker_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CLIENT_H_
