#include "tests/unit/client/fake_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "google/rpc/status.pb.h"

namespace tlm {
namespace {

template <typename Response>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 const Script<Response>& script, Response* response) {
  if (!script.responses.empty()) *response = script.responses[0];
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(script.status);
  return reactor;
}

}  // namespace

// Writes the script, one response after the other. Finish is called once: at the script's end, or,
// when the call is held, by OnCancel, whichever of cancellation and hold comes last.
template <typename Response>
class FakeServer::StreamReactor : public grpc::ServerWriteReactor<Response> {
 public:
  StreamReactor(Script<Response> script, FakeServer* server)
      : script_(std::move(script)), server_(server) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      EndOrHold();
    }
  }
  void OnCancel() override {
    server_->NoteCancellation();
    if (script_.hold) FinishAfterBoth();
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    if (next_ == script_.responses.size()) {
      EndOrHold();
    } else {
      this->StartWrite(&script_.responses[next_++]);
    }
  }
  void EndOrHold() {
    if (!script_.hold) {
      this->Finish(script_.status);
      return;
    }
    server_->NoteHold();
    FinishAfterBoth();
  }
  void FinishAfterBoth() {
    if (reached_.fetch_add(1) == 1) this->Finish(grpc::Status::CANCELLED);
  }

  const Script<Response> script_;
  FakeServer* const server_;
  size_t next_ = 0;
  std::atomic<int> reached_{0};
};

FakeServer::FakeServer() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string FakeServer::target() const { return "127.0.0.1:" + std::to_string(port_); }

void FakeServer::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

void FakeServer::WaitForCancellation() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return cancellations_ > 0; });
}

void FakeServer::WaitForHold() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return holds_ > 0; });
}

void FakeServer::NoteHold() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++holds_;
  changed_.notify_all();
}

void FakeServer::NoteCancellation() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++cancellations_;
  changed_.notify_all();
}

template <typename Request>
void FakeServer::Remember(const grpc::CallbackServerContext& context, const Request& request,
                          Request* last) {
  std::lock_guard<std::mutex> lock(mutex_);
  *last = request;
  last_metadata_.clear();
  for (const auto& [key, value] : context.client_metadata()) {
    last_metadata_.emplace(std::string(key.data(), key.size()),
                           std::string(value.data(), value.size()));
  }
}

grpc::ServerWriteReactor<v1::GenerateResponse>* FakeServer::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  Remember(*context, *request, &last_generate_);
  size_t index;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    index = generate_requests_.size();
    generate_requests_.push_back(*request);
  }
  Script<v1::GenerateResponse> script = index < generates.size() ? generates[index] : generate;
  if (answer_generate) script = answer_generate(*request);
  return new StreamReactor<v1::GenerateResponse>(std::move(script), this);
}

grpc::ServerWriteReactor<v1::ForwardResponse>* FakeServer::Forward(
    grpc::CallbackServerContext* context, const v1::ForwardRequest* request) {
  Remember(*context, *request, &last_forward_);
  return new StreamReactor<v1::ForwardResponse>(forward, this);
}

grpc::ServerUnaryReactor* FakeServer::ModelInfo(grpc::CallbackServerContext* context,
                                                const v1::ModelInfoRequest* request,
                                                v1::ModelInfoResponse* response) {
  Remember(*context, *request, &last_model_info_);
  return Answer(context, model_info, response);
}

grpc::ServerUnaryReactor* FakeServer::Score(grpc::CallbackServerContext* context,
                                            const v1::ScoreRequest* request,
                                            v1::ScoreResponse* response) {
  Remember(*context, *request, &last_score_);
  return Answer(context, score, response);
}

grpc::ServerUnaryReactor* FakeServer::Verify(grpc::CallbackServerContext* context,
                                             const v1::VerifyRequest* request,
                                             v1::VerifyResponse* response) {
  v1::VerifyRequest last;
  Remember(*context, *request, &last);
  Script<v1::VerifyResponse> script = verify;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t index = verify_requests_.size();
    verify_requests_.push_back(std::move(last));
    if (index < script.responses.size()) script.responses = {script.responses[index]};
  }
  return Answer(context, script, response);
}

grpc::ServerUnaryReactor* FakeServer::Tokenize(grpc::CallbackServerContext* context,
                                               const v1::TokenizeRequest* request,
                                               v1::TokenizeResponse* response) {
  Remember(*context, *request, &last_tokenize_);
  return Answer(context, tokenize, response);
}

grpc::ServerUnaryReactor* FakeServer::Detokenize(grpc::CallbackServerContext* context,
                                                 const v1::DetokenizeRequest* request,
                                                 v1::DetokenizeResponse* response) {
  Remember(*context, *request, &last_detokenize_);
  return Answer(context, detokenize, response);
}

grpc::Status StatusWithDetails(grpc::StatusCode code, const std::string& message,
                               const google::rpc::BadRequest& bad_request,
                               const google::rpc::ErrorInfo& error_info,
                               const google::rpc::RetryInfo& retry_info) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  details.add_details()->PackFrom(bad_request);
  details.add_details()->PackFrom(error_info);
  details.add_details()->PackFrom(retry_info);
  return grpc::Status(code, message, details.SerializeAsString());
}

std::vector<v1::GenerateResponse> GenerateScript(const std::vector<std::string>& texts) {
  std::vector<v1::GenerateResponse> events(1);
  events[0].mutable_started()->set_request_id("r1");
  events[0].mutable_started()->mutable_effective()->set_num_sequences(1);
  events[0].mutable_started()->set_prompt_token_count(3);
  for (size_t i = 0; i < texts.size(); ++i) {
    v1::GenerateTokens& tokens = *events.emplace_back().mutable_tokens();
    tokens.set_position(3 + i);
    tokens.set_text(texts[i]);
    v1::TokenInfo& token = *tokens.add_tokens();
    token.set_id(static_cast<uint32_t>(100 + i));
    token.set_bytes(texts[i]);
    token.set_logprob(-0.5f);
    token.set_rank(1);
  }
  events.emplace_back().mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  v1::Usage& usage = *events.emplace_back().mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(3);
  usage.set_completion_tokens(texts.size());
  return events;
}

std::vector<v1::GenerateResponse> RegionScript(const std::vector<ScriptedRegion>& regions) {
  std::vector<std::string> texts;
  for (const ScriptedRegion& region : regions) texts.push_back(region.text);
  std::vector<v1::GenerateResponse> events = GenerateScript(texts);
  uint32_t index = 0;
  uint32_t calls = 0;
  for (size_t i = 0; i < regions.size(); ++i) {
    v1::GenerateTokens& tokens = *events[1 + i].mutable_tokens();
    const auto& [kind, text, tool, complete] = regions[i];
    if (kind == v1::REGION_KIND_UNSPECIFIED) {
      tokens.add_regions()->set_marker(text);
      continue;
    }
    v1::RegionEvent::Started& started = *tokens.add_regions()->mutable_started();
    started.set_region_index(index);
    started.set_kind(kind);
    v1::RegionEvent::Delta& delta = *tokens.add_regions()->mutable_delta();
    delta.set_region_index(index);
    delta.set_kind(kind);
    delta.set_text(text);
    if (kind == v1::REGION_KIND_TOOL_CALL) {
      started.mutable_tool_call()->set_index(calls);
      started.mutable_tool_call()->set_id("call" + std::to_string(calls++));
      started.mutable_tool_call()->set_name(tool);
      delta.set_arguments_json(text);
    }
    v1::RegionEvent::Finished& finished = *tokens.add_regions()->mutable_finished();
    finished.set_region_index(index++);
    finished.set_kind(kind);
    finished.set_complete(complete);
  }
  return events;
}

std::vector<v1::ForwardResponse> ForwardScript(int rows) {
  std::vector<v1::ForwardResponse> messages(1);
  v1::ForwardHeader& header = *messages[0].mutable_header();
  header.set_rows_total(static_cast<uint64_t>(rows));
  header.set_vocab_size(3);
  header.set_row_width(3);
  header.set_dtype(v1::DATA_TYPE_FLOAT32);
  header.set_values(v1::ROW_VALUES_LOGITS);
  for (int r = 0; r < rows; ++r) {
    v1::ForwardRows& chunk = *messages.emplace_back().mutable_rows();
    chunk.set_first_position(static_cast<uint32_t>(r));
    chunk.set_row_count(1);
    for (int column = 0; column < 3; ++column) {
      const float value = static_cast<float>(10 * r + column);
      chunk.mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  messages.emplace_back().mutable_summary();
  return messages;
}

}  // namespace tlm
