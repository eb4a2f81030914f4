#include <google/protobuf/io/coded_stream.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/unary_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/language_model/handlers.h"

namespace tlm {
namespace {

absl::Status CheckResponseSize(size_t bytes, const ServedModel& model) {
  const int64_t limit = model.limits.max_response_bytes;
  if (static_cast<int64_t>(bytes) <= limit) return absl::OkStatus();
  return WithReason(
      ResourceExhausted("the answer takes more than {} bytes, the limit of a message: send less at "
                        "a time",
                        limit),
      "MESSAGE_TOO_LARGE");
}

// Returns the bytes of a token in the answer.
size_t AnswerBytes(int32_t id, const Tokenizer& tokenizer) {
  using google::protobuf::io::CodedOutputStream;
  const size_t bytes = tokenizer.TokenBytes(id).size();
  return CodedOutputStream::VarintSize32(static_cast<uint32_t>(id)) + 1 +
         CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) + bytes;
}

}  // namespace

// A message takes ten times its serialized size in memory, so it is made once its size is known to
// be allowed.
absl::Status Tokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                      const IsCancelled& cancelled, v1::TokenizeResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "text", "token ids are all it takes"));
  std::optional<bool> special;
  if (request.has_add_special_tokens()) special = request.add_special_tokens();
  std::vector<int32_t> ids;
  size_t bytes = 0;
  const auto take = [&](std::span<const int32_t> some) {
    if (cancelled()) return Cancelled("the call has ended");
    for (const int32_t id : some) bytes += AnswerBytes(id, *model.tokenizer);
    ids.insert(ids.end(), some.begin(), some.end());
    return CheckResponseSize(bytes, model);
  };
  TLM_RETURN_IF_ERROR(TokenizeTextTo(request.text(), special, model, "text", take));
  response.mutable_token_ids()->Add(ids.begin(), ids.end());
  response.mutable_token_bytes()->Reserve(static_cast<int>(ids.size()));
  for (const int32_t id : ids) {
    response.add_token_bytes(std::string(model.tokenizer->TokenBytes(id)));
  }
  return CheckResponseSize(response.ByteSizeLong(), model);
}

absl::Status Detokenize(const v1::DetokenizeRequest& request, const ServedModel& model,
                        const IsCancelled& cancelled, v1::DetokenizeResponse& response) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "token_ids", "there is no text to give"));
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       TokenIdsOf(request.token_ids(), model, "token_ids"));
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  for (const int32_t id : ids) {
    if (skip_special && model.tokenizer->IsSpecial(id)) continue;
    response.mutable_bytes()->append(model.tokenizer->TokenBytes(id));
    // Checked before more memory is taken: a few request bytes may stand for a long token.
    TLM_RETURN_IF_ERROR(CheckResponseSize(response.bytes().size(), model));
  }
  if (cancelled()) return Cancelled("the call has ended");
  response.set_text(model.tokenizer->Decode(ids, skip_special));
  return CheckResponseSize(response.ByteSizeLong(), model);
}

namespace {

template <typename RequestMessage, typename Response>
class TextCall final : public UnaryCall {
 public:
  using Answer = absl::Status (*)(const RequestMessage&, const ServedModel&, const IsCancelled&,
                                  Response&);

  TextCall(const char* name, grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
           const RpcContext& rpc, Answer answer)
      : UnaryCall(context, BeginCall(name, Role::kInference, *context, rpc), rpc),
        response_(response),
        answer_(answer) {}

  void Start(const grpc::ByteBuffer& request) {
    pool_ = rpc_.texts.For(static_cast<int64_t>(request.Length()));
    Run<RequestMessage>(request, [this](const auto& message) { return Respond(message); });
  }

 private:
  absl::Status Enter() override TLM_REQUIRES(mutex_) {
    TLM_RETURN_IF_ERROR(rpc_.admission.CountRequest(record_.caller));
    if (pool_ == nullptr) return absl::OkStatus();
    TLM_ASSIGN_OR_RETURN(ticket_, rpc_.admission.Admit({.caller = record_.caller,
                                                        .request_id = "",
                                                        .tokens = 0,
                                                        .deadline = record_.deadline}));
    return absl::OkStatus();
  }

  absl::Status Respond(const RequestMessage& request) {
    Response response;
    TLM_RETURN_IF_ERROR(answer_(
        request, rpc_.model, [this] { return IsEnding(); }, response));
    MutexLock lock(&mutex_);
    PutMessage(response, *response_);
    if (pool_ != nullptr) {
      held_ = pool_->Hold(record_.caller.tenant, static_cast<int64_t>(response_->Length()));
    }
    answered_ = true;
    return absl::OkStatus();
  }

  std::optional<absl::Status> Collect() override TLM_REQUIRES(mutex_) {
    return answered_ ? std::optional(absl::OkStatus()) : std::nullopt;
  }
  void Abandon() override TLM_REQUIRES(mutex_) {}

  grpc::ByteBuffer* const response_;  // not used once the call has finished
  const Answer answer_;
  FairPool* pool_ = nullptr;  // null: answered at once
  FairPool::Undo held_ TLM_GUARDED_BY(mutex_);
  bool answered_ TLM_GUARDED_BY(mutex_) = false;
};

template <typename RequestMessage, typename Response>
grpc::ServerUnaryReactor* StartTextCall(const char* name, grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                        const RpcContext& rpc,
                                        absl::Status (*answer)(const RequestMessage&,
                                                               const ServedModel&,
                                                               const IsCancelled&, Response&)) {
  const auto call =
      std::make_shared<TextCall<RequestMessage, Response>>(name, context, response, rpc, answer);
  call->Start(request);
  return call.get();
}

}  // namespace

grpc::ServerUnaryReactor* StartTokenize(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                        const RpcContext& rpc) {
  return StartTextCall("Tokenize", context, request, response, rpc, Tokenize);
}

grpc::ServerUnaryReactor* StartDetokenize(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer* response, const RpcContext& rpc) {
  return StartTextCall("Detokenize", context, request, response, rpc, Detokenize);
}

}  // namespace tlm
