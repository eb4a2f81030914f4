#include "server/rpc/oip/oip_infer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/unary_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/oip/oip_convert.h"
#include "server/rpc/output/output_group.h"

namespace tlm {
namespace {

class OipInferReactor final : public UnaryCall {
 public:
  OipInferReactor(grpc::CallbackServerContext* context, inference::ModelInferResponse* response,
                  const RpcContext& rpc)
      : UnaryCall(context, BeginCall("ModelInfer", Role::kInference, *context, rpc), rpc),
        response_(response) {}

  void Start(const inference::ModelInferRequest& request) {
    Run(request.id(), static_cast<int64_t>(request.ByteSizeLong()),
        [this, &request] { return Take(request); });
  }

 private:
  absl::Status Take(const inference::ModelInferRequest& message) {
    TLM_ASSIGN_OR_RETURN(OipCall oip, ConvertOip(message, rpc_.model));
    TLM_ASSIGN_OR_RETURN(GenerateCall generate,
                         ConvertGenerate(oip.request, rpc_.model, rpc_.random));
    MutexLock lock(&mutex_);
    call_ = std::move(oip);
    record_.prompt_tokens = static_cast<int64_t>(generate.prompt.size());
    TLM_RETURN_IF_ERROR(Admit(generate.priority));
    output_.emplace(generate, rpc_.model.tokenizer, weak_from_this());
    return Submit(output_->RequestFor(std::move(generate), record_.arrival));
  }

  std::optional<absl::Status> Collect() override TLM_REQUIRES(mutex_) {
    if (!output_.has_value()) return std::nullopt;
    output_->Collect();
    record_.completion_tokens = output_->completion_tokens();
    if (output_->start().has_value()) {
      NoteStart(*output_->start());
      TakeEvents();
    }
    if (!output_->failure().ok()) return output_->failure();
    if (!output_->complete()) return std::nullopt;
    FillOipResponse(call_, answer_, record_.request_id, rpc_.model, *response_);
    return absl::OkStatus();
  }

  void TakeEvents() TLM_REQUIRES(mutex_) {
    for (v1::GenerateResponse event; output_->NextEvent(event); event.Clear()) {
      if (event.has_finished()) answer_.reason = event.finished().reason();
      answer_.text += event.tokens().text();
      for (const v1::TokenInfo& token : event.tokens().tokens()) {
        answer_.ids.push_back(static_cast<int32_t>(token.id()));
      }
    }
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    if (output_.has_value()) output_->Detach();
  }

  inference::ModelInferResponse* const response_;  // not used once the call has finished
  OipCall call_ TLM_GUARDED_BY(mutex_);
  std::optional<OutputGroup> output_ TLM_GUARDED_BY(mutex_);
  OipAnswer answer_ TLM_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerUnaryReactor* StartOipInfer(grpc::CallbackServerContext* context,
                                        const inference::ModelInferRequest& request,
                                        inference::ModelInferResponse* response,
                                        const RpcContext& rpc) {
  // Shared: a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<OipInferReactor>(context, response, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
