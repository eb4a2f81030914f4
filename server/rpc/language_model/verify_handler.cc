#include <memory>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/unary_call.h"
#include "server/rpc/generate/constrained_call.h"
#include "server/rpc/language_model/handlers.h"
#include "server/rpc/output/claim_check.h"

namespace tlm {
namespace {

class VerifyReactor final : public ConstrainedCall<UnaryCall> {
 public:
  VerifyReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                const RpcContext& rpc)
      : ConstrainedCall(context, BeginCall("Verify", Role::kInference, *context, rpc), rpc),
        response_(response) {
    record_.operation = "verify";
  }

  void Start(const grpc::ByteBuffer& request) {
    Run<v1::VerifyRequest>(request, [this](const auto& message) { return Take(message); });
  }

 private:
  absl::Status Take(const v1::VerifyRequest& message) {
    TLM_ASSIGN_OR_RETURN(GenerateCall call, ConvertVerify(message, rpc_.model));
    {
      MutexLock lock(&mutex_);
      record_.prompt_tokens = static_cast<int64_t>(call.prompt.size() + call.work.claimed.size());
    }
    return AdmitAndBegin(std::move(call));
  }

  absl::Status BeginOutputs(GenerateCall call) override TLM_REQUIRES(mutex_) {
    check_.emplace(call, rpc_.model.tokenizer, rpc_.model.limits.max_context_tokens);
    call.work.claimed.resize(check_->to_draw());
    stream_ = std::make_shared<TokenStream>(weak_from_this());
    Request request;
    request.prompt = std::move(call.prompt);
    request.work = std::move(call.work);
    request.cache = std::move(call.cache);
    request.priority = call.priority;
    request.stream = stream_;
    return Submit(std::move(request));
  }

  absl::Status Refusal(absl::Status status) const override { return InRequest(status); }

  std::optional<absl::Status> Collect() override TLM_REQUIRES(mutex_) {
    if (stream_ == nullptr) return std::nullopt;
    const TokenStream::Pending pending = stream_->Take();
    if (pending.start.has_value()) NoteStart(*pending.start);
    for (const SampledToken& token : pending.tokens) check_->Add(token.id);
    if (!pending.end.has_value()) return std::nullopt;
    if (!pending.end->status.ok()) return pending.end->status;
    v1::VerifyResponse verdict;
    TLM_RETURN_IF_ERROR(check_->FillVerdict(*pending.end, verdict));
    verdict.set_request_id(record_.request_id);
    verdict.set_fingerprint(rpc_.model.fingerprint);
    *verdict.mutable_usage() = UsageOf(record_);
    PutMessage(verdict, *response_);
    return absl::OkStatus();
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    DropConstraint();
    if (stream_ != nullptr) stream_->Detach();
  }

  grpc::ByteBuffer* const response_;  // not used once the call has finished
  std::optional<ClaimCheck> check_ TLM_GUARDED_BY(mutex_);
  std::shared_ptr<TokenStream> stream_ TLM_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerUnaryReactor* StartVerify(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                      const RpcContext& rpc) {
  // Shared, because a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<VerifyReactor>(context, response, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
