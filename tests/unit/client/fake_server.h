// A LanguageModel server in this process that answers with what a test scripted.
#ifndef TLM_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
#define TLM_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

#include <grpcpp/server.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm {

// What a call is answered with.
template <typename Response>
struct Script {
  std::vector<Response> responses;  // the first one for a unary call
  grpc::Status status;
  bool hold = false;  // after the responses, keep the call open until the client cancels it
};

// Listens on a free loopback port. Set the scripts before the first call. Calls are served by
// gRPC's threads; those that are open when the server is destroyed break off.
class FakeServer final : public v1::LanguageModel::CallbackService {
 public:
  FakeServer();
  ~FakeServer() override;

  std::string target() const;
  void SetServing(bool serving);

  // The i-th Generate call gets the i-th of `generates`, further calls get `generate`.
  std::vector<Script<v1::GenerateResponse>> generates;
  Script<v1::GenerateResponse> generate;
  // If set, every Generate call gets what this returns instead. Called by any thread.
  std::function<Script<v1::GenerateResponse>(const v1::GenerateRequest&)> answer_generate;
  Script<v1::ForwardResponse> forward;
  Script<v1::ModelInfoResponse> model_info;
  Script<v1::ScoreResponse> score;
  // The i-th Verify call gets the i-th of its responses.
  Script<v1::VerifyResponse> verify;
  Script<v1::TokenizeResponse> tokenize;
  Script<v1::DetokenizeResponse> detokenize;

  // All Generate and Verify requests, the latest request of each kind, and the metadata of the
  // latest call.
  std::vector<v1::GenerateRequest> generate_requests() const { return Copy(generate_requests_); }
  v1::GenerateRequest last_generate() const { return Copy(last_generate_); }
  v1::ForwardRequest last_forward() const { return Copy(last_forward_); }
  v1::ScoreRequest last_score() const { return Copy(last_score_); }
  std::vector<v1::VerifyRequest> verify_requests() const { return Copy(verify_requests_); }
  v1::TokenizeRequest last_tokenize() const { return Copy(last_tokenize_); }
  v1::DetokenizeRequest last_detokenize() const { return Copy(last_detokenize_); }
  std::multimap<std::string, std::string> last_metadata() const { return Copy(last_metadata_); }

  // Block until a client has cancelled a held call; until all responses of a held call were sent.
  void WaitForCancellation();
  void WaitForHold();

 private:
  template <typename Response>
  class StreamReactor;

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context, const v1::ForwardRequest* request) override;
  grpc::ServerUnaryReactor* ModelInfo(grpc::CallbackServerContext* context,
                                      const v1::ModelInfoRequest* request,
                                      v1::ModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Verify(grpc::CallbackServerContext* context,
                                   const v1::VerifyRequest* request,
                                   v1::VerifyResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

  template <typename T>
  T Copy(const T& value) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return value;
  }
  template <typename Request>
  void Remember(const grpc::CallbackServerContext& context, const Request& request, Request* last);
  void NoteHold();
  void NoteCancellation();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int holds_ = 0;
  int cancellations_ = 0;
  std::vector<v1::GenerateRequest> generate_requests_;
  v1::GenerateRequest last_generate_;
  v1::ForwardRequest last_forward_;
  v1::ModelInfoRequest last_model_info_;
  v1::ScoreRequest last_score_;
  std::vector<v1::VerifyRequest> verify_requests_;
  v1::TokenizeRequest last_tokenize_;
  v1::DetokenizeRequest last_detokenize_;
  std::multimap<std::string, std::string> last_metadata_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A status with code, message and the three kinds of details.
grpc::Status StatusWithDetails(grpc::StatusCode code, const std::string& message,
                               const google::rpc::BadRequest& bad_request,
                               const google::rpc::ErrorInfo& error_info,
                               const google::rpc::RetryInfo& retry_info);

// A complete Generate stream of one output: started, one `tokens` event for each text, finished,
// summary. The i-th text is token 100 + i.
std::vector<v1::GenerateResponse> GenerateScript(const std::vector<std::string>& texts);

// A piece of an answer: a kind of region (or a marker, for REGION_KIND_UNSPECIFIED), and its text.
// A call has the tool's name, and its text is its arguments.
struct ScriptedRegion {
  v1::RegionKind kind;
  std::string text;
  std::string tool = {};
  bool complete = true;
};

// As GenerateScript, one event for each region. The i-th call has the id "call<i>".
std::vector<v1::GenerateResponse> RegionScript(const std::vector<ScriptedRegion>& regions);

// A complete Forward stream: rows of three values 10 r, 10 r + 1, 10 r + 2 at positions 0 to rows
// - 1.
std::vector<v1::ForwardResponse> ForwardScript(int rows);

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
