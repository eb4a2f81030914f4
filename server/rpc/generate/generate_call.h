// Implements the Generate call of all protocols: a stream or unary, with messages from a mapping.
//
//   request   --mapping.Read-->   tlm.v1 request  -->  engine
//   messages  <--mapping.Write--  tlm.v1 events   <--
#ifndef TLM_SERVER_RPC_GENERATE_GENERATE_CALL_H_
#define TLM_SERVER_RPC_GENERATE_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/streaming_call.h"
#include "server/rpc/call/unary_call.h"
#include "server/rpc/generate/constrained_call.h"
#include "server/rpc/generate/generate_mapping.h"
#include "server/rpc/generate/generate_outputs.h"

namespace tlm {

// A protocol's name for the call.
struct GenerateMethod {
  const char* name;                        // in the log and in metrics
  int request_id_field = kRequestIdField;  // number of the request's text field
};

// The parts that streams and unary calls share; Base is StreamingCall or UnaryCall.
template <typename Base, typename Mapping>
class GenerateBase : public ConstrainedCall<Base> {
 public:
  GenerateBase(const GenerateMethod& method, grpc::CallbackServerContext* context,
               const RpcContext& rpc, std::unique_ptr<Mapping> mapping)
      : ConstrainedCall<Base>(context, BeginCall(method.name, Role::kInference, *context, rpc),
                              rpc),
        request_id_field_(method.request_id_field),
        mapping_(std::move(mapping)) {
    this->record_.operation = "text_completion";
  }

  void Start(const grpc::ByteBuffer& request) {
    this->template Run<typename Mapping::Request>(
        request, [this](typename Mapping::Request& message) { return Take(message); },
        request_id_field_);
  }

 protected:
  // The results that a call takes in while a write is in flight; later ones stay in the token
  // streams.
  static constexpr int64_t kMaxBacklog = 256;

  const Mapping& mapping() const { return *mapping_; }

  void Abandon() final TLM_REQUIRES(this->mutex_) {
    this->DropConstraint();
    if (outputs_.has_value()) outputs_->Detach();
  }

  void CollectOutputs() TLM_REQUIRES(this->mutex_) {
    if (!outputs_.has_value()) return;
    outputs_->Collect(this->record_);
    if (outputs_->start().has_value()) this->NoteStart(*outputs_->start());
  }

  // Passes events to the mapping until a message is to be sent. False if there is none yet, or the
  // call ends: then `end` has the status.
  bool NextMessage(typename Mapping::Response& message, std::optional<absl::Status>& end)
      TLM_REQUIRES(this->mutex_) {
    while (outputs_.has_value()) {
      event_.Clear();
      end = outputs_->Next(this->record_, event_);
      if (end.has_value() || event_.event_case() == v1::GenerateResponse::EVENT_NOT_SET) break;
      if (mapping_->Write(event_, message)) return true;
    }
    return false;
  }

  // Returns OK, or why the message cannot be sent: some protocols put a whole answer into one
  // message.
  absl::Status CheckSize(const typename Mapping::Response& message) const {
    const int64_t bytes = static_cast<int64_t>(message.ByteSizeLong());
    const int64_t limit = this->rpc_.model.limits.max_response_bytes;
    if (bytes <= limit) return absl::OkStatus();
    return WithReason(ResourceExhausted("a message of the answer has {} bytes, the limit is {}: "
                                        "ask for fewer tokens or log-probabilities",
                                        bytes, limit),
                      "MESSAGE_TOO_LARGE");
  }

  std::optional<GenerateOutputs> outputs_ TLM_GUARDED_BY(this->mutex_);

 private:
  absl::StatusOr<GenerateCall> Read(typename Mapping::Request& message,
                                    v1::GenerateRequest& generate) {
    TLM_RETURN_IF_ERROR(mapping_->Read(message, this->rpc_.model, generate));
    return ConvertGenerate(generate, this->rpc_.model, this->rpc_.random);
  }

  absl::Status Take(typename Mapping::Request& message) {
    v1::GenerateRequest generate;
    absl::StatusOr<GenerateCall> call = Read(message, generate);
    if (!call.ok()) return Refusal(call.status());
    {
      MutexLock lock(&this->mutex_);
      this->record_.prompt_tokens = static_cast<int64_t>(call->prompt.size());
      NoteRequest(generate, *call, !std::is_same_v<Base, UnaryCall>, this->record_);
    }
    return this->AdmitAndBegin(*std::move(call));
  }

  absl::Status BeginOutputs(GenerateCall call) final TLM_REQUIRES(this->mutex_) {
    outputs_.emplace(call, this->rpc_.model, this->weak_from_this());
    TLM_ASSIGN_OR_RETURN(Request request, outputs_->Begin(std::move(call), this->record_));
    return this->Submit(std::move(request));
  }

  absl::Status Refusal(absl::Status status) const final {
    return mapping_->Refusal(std::move(status));
  }

  const int request_id_field_;
  // The thread that reads the request calls Read(); later calls hold the lock.
  const std::unique_ptr<Mapping> mapping_;
  v1::GenerateResponse event_ TLM_GUARDED_BY(this->mutex_);
};

template <typename Mapping>
class GenerateStream final
    : public GenerateBase<StreamingCall<typename Mapping::Response>, Mapping> {
 public:
  using GenerateBase<StreamingCall<typename Mapping::Response>, Mapping>::GenerateBase;

 private:
  using Step = typename StreamingCall<typename Mapping::Response>::NextStep;

  void Collect() override TLM_REQUIRES(this->mutex_) { this->CollectOutputs(); }
  bool IsAfter() const override TLM_REQUIRES(this->mutex_) {
    return this->outputs_.has_value() && this->outputs_->backlog() > this->kMaxBacklog;
  }
  bool FailsAsStream(const absl::Status& status) const override {
    return this->mapping().FailsAsStream(status);
  }
  Step Next(typename Mapping::Response& message) override TLM_REQUIRES(this->mutex_) {
    std::optional<absl::Status> end;
    if (this->NextMessage(message, end)) {
      const absl::Status fits = this->CheckSize(message);
      return fits.ok() ? Step::Message() : Step::End(fits);
    }
    return end.has_value() ? Step::End(*end) : Step::Nothing();
  }
};

template <typename Mapping>
class GenerateUnary final : public GenerateBase<UnaryCall, Mapping> {
 public:
  GenerateUnary(const GenerateMethod& method, grpc::CallbackServerContext* context,
                const RpcContext& rpc, std::unique_ptr<Mapping> mapping, grpc::ByteBuffer* response)
      : GenerateBase<UnaryCall, Mapping>(method, context, rpc, std::move(mapping)),
        response_(response) {}

 private:
  std::optional<absl::Status> Collect() override TLM_REQUIRES(this->mutex_) {
    this->CollectOutputs();
    std::optional<absl::Status> end;
    while (this->NextMessage(message_, end)) {
    }
    if (end.has_value() && end->ok()) end = this->CheckSize(message_);
    if (end.has_value() && end->ok()) PutMessage(message_, *response_);
    return end;
  }

  typename Mapping::Response message_ TLM_GUARDED_BY(this->mutex_);
  grpc::ByteBuffer* const response_;  // not used once the call has finished
};

// Start the calls of services whose Generate methods have raw messages. Before `gate` is open a
// call ends with UNAVAILABLE, reason STARTING.
template <typename Mapping>
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerateStream(
    const GenerateMethod& method, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer& request, const CallServices& services, const RpcGate& gate,
    std::unique_ptr<Mapping> mapping) {
  if (!request.Valid()) return new RefusedStream(WithoutMessage());
  const RpcContext* const rpc = gate.Get();
  if (rpc == nullptr) return new RefusedStream(StartingCall(method.name, *context, services));
  // Shared, because a wake-up of the engine may overlap with the call's end.
  const auto call =
      std::make_shared<GenerateStream<Mapping>>(method, context, *rpc, std::move(mapping));
  call->Start(request);
  return call.get();
}

template <typename Mapping>
grpc::ServerUnaryReactor* StartGenerateUnary(const GenerateMethod& method,
                                             grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer& request,
                                             grpc::ByteBuffer* response,
                                             const CallServices& services, const RpcGate& gate,
                                             std::unique_ptr<Mapping> mapping) {
  if (!request.Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall(method.name, *context, services));
  const auto call =
      std::make_shared<GenerateUnary<Mapping>>(method, context, *rpc, std::move(mapping), response);
  call->Start(request);
  return call.get();
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_GENERATE_CALL_H_
