#include <memory>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/unary_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/language_model/handlers.h"

namespace tlm {
namespace {

class ScoreReactor final : public UnaryCall {
 public:
  ScoreReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
               const RpcContext& rpc)
      : UnaryCall(context, BeginCall("Score", Role::kInference, *context, rpc), rpc),
        response_(response) {
    record_.operation = "score";
  }

  void Start(const grpc::ByteBuffer& request) {
    Run<v1::ScoreRequest>(request, [this](const auto& message) { return Take(message); });
  }

 private:
  absl::Status Take(const v1::ScoreRequest& message) {
    TLM_ASSIGN_OR_RETURN(ScoreCall call, ConvertScore(message, rpc_.model));
    MutexLock lock(&mutex_);
    record_.prompt_tokens = call.total_tokens;
    TLM_RETURN_IF_ERROR(Admit());
    for (size_t i = 0; i < call.work.continuations.size(); ++i) {
      scores_.add_scores()->set_is_greedy(true);
    }
    stream_ = std::make_shared<TokenStream>(weak_from_this());
    Request request;
    request.prompt = std::move(call.prompt);
    request.work = std::move(call.work);
    request.stream = stream_;
    return Submit(std::move(request));
  }

  std::optional<absl::Status> Collect() override TLM_REQUIRES(mutex_) {
    if (stream_ == nullptr) return std::nullopt;
    const TokenStream::Pending pending = stream_->Take();
    if (pending.start.has_value()) NoteStart(*pending.start);
    for (const ScoredEntry& entry : pending.scored) {
      AddToken(entry.token, *scores_.mutable_scores(static_cast<int>(entry.index)));
    }
    if (!pending.end.has_value()) return std::nullopt;
    if (!pending.end->status.ok()) return pending.end->status;
    scores_.set_request_id(record_.request_id);
    scores_.set_fingerprint(rpc_.model.fingerprint);
    *scores_.mutable_usage() = UsageOf(record_);
    PutMessage(scores_, *response_);
    return absl::OkStatus();
  }

  void AddToken(const SampledToken& token, v1::ContinuationScore& score) const {
    FillTokenInfo(token, rpc_.model.tokenizer, *score.add_tokens());
    score.set_token_count(score.token_count() + 1);
    score.set_sum_logprob(score.sum_logprob() + static_cast<double>(token.score->logprob));
    score.set_is_greedy(score.is_greedy() && token.score->rank == 1);
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    if (stream_ != nullptr) stream_->Detach();
  }

  grpc::ByteBuffer* const response_;  // not used once the call has finished
  v1::ScoreResponse scores_ TLM_GUARDED_BY(mutex_);
  std::shared_ptr<TokenStream> stream_ TLM_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerUnaryReactor* StartScore(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                     const RpcContext& rpc) {
  // Shared, because a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<ScoreReactor>(context, response, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
