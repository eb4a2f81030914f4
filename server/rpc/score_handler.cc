#include "server/rpc/score_handler.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call_record.h"
#include "server/rpc/call_registry.h"
#include "server/rpc/deadline_timer.h"
#include "server/rpc/proto_time.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/token_info.h"

namespace tlm {
namespace {

// Lives as a StreamingCall does, with one message at the end instead of writes between.
class ScoreReactor final : public grpc::ServerUnaryReactor,
                           public StreamListener,
                           public AbortableCall,
                           public std::enable_shared_from_this<ScoreReactor> {
 public:
  ScoreReactor(grpc::CallbackServerContext* context, v1::ScoreResponse* response,
               const RpcContext& rpc)
      : context_(context),
        response_(response),
        rpc_(rpc),
        record_(CallRecord::Begin("Score", rpc.clock)) {
    record_.deadline = AnswerBy(DeadlineFrom(context->deadline()), record_.arrival);
  }

  void Start(const v1::ScoreRequest& request) {
    self_ = shared_from_this();
    const absl::Status status = Submit(request);
    if (!status.ok()) {
      FinishOnce(status);
      return;
    }
    absl::Time deadline;
    {
      MutexLock lock(&mutex_);
      deadline = record_.deadline;
    }
    deadline_timer_.Start(deadline, weak_from_this());
  }

  // The delivery thread.
  void OnStreamReady() override {
    std::optional<absl::Status> end;
    {
      MutexLock lock(&mutex_);
      if (!finished_) end = Collect();
    }
    if (end.has_value()) FinishOnce(*end);
  }

  // The answer has to leave now to be with the client in time.
  void OnDeadline() { FinishAs(ExpiredStatus); }

  bool Abort(const absl::Status& status) override { return FinishOnce(status); }

 private:
  absl::Status Submit(const v1::ScoreRequest& message) {
    TLM_ASSIGN_OR_RETURN(const std::string request_id,
                         RequestIdOf(message.request_id(), rpc_.model, rpc_.random));
    absl::StatusOr<ScoreCall> converted = Read(message);
    MutexLock lock(&mutex_);
    record_.request_id = request_id;
    TLM_ASSIGN_OR_RETURN(ScoreCall call, std::move(converted));
    record_.prompt_tokens = call.total_tokens;
    TLM_ASSIGN_OR_RETURN(ticket_,
                         rpc_.admission.Admit(request_id, call.total_tokens, record_.deadline));
    registration_ = rpc_.calls.Register(request_id, weak_from_this());
    for (size_t i = 0; i < call.work.continuations.size(); ++i) {
      response_->add_scores()->set_is_greedy(true);
    }
    stream_ = std::make_shared<TokenStream>(weak_from_this());
    Request request;
    request.id = request_id;
    request.prompt = std::move(call.prompt);
    request.score = std::move(call.work);
    request.deadline = record_.deadline;
    request.stream = stream_;
    return rpc_.engine.Submit(std::move(request));
  }

  absl::StatusOr<ScoreCall> Read(const v1::ScoreRequest& message) const {
    TLM_RETURN_IF_ERROR(CheckOpen(rpc_));
    return ConvertScore(message, rpc_.model);
  }

  // Takes in what has arrived; how the call ends, once it does.
  std::optional<absl::Status> Collect() TLM_REQUIRES(mutex_) {
    if (stream_ == nullptr) return std::nullopt;
    const TokenStream::Pending pending = stream_->Take();
    if (pending.start.has_value()) {
      record_.started = true;
      record_.queue_time = pending.start->queue_time;
      record_.cached_prompt_tokens = pending.start->cached_prompt_tokens;
    }
    for (const ScoredEntry& entry : pending.scored) {
      AddToken(entry.token, *response_->mutable_scores(static_cast<int>(entry.index)));
    }
    if (!pending.end.has_value()) return std::nullopt;
    if (!pending.end->status.ok()) return pending.end->status;
    response_->set_request_id(record_.request_id);
    response_->set_fingerprint(rpc_.model.fingerprint);
    *response_->mutable_usage() = UsageOf(record_);
    return absl::OkStatus();
  }

  void AddToken(const SampledToken& token, v1::ContinuationScore& score) const {
    FillTokenInfo(token, rpc_.model.tokenizer, *score.add_tokens());
    score.set_token_count(score.token_count() + 1);
    score.set_sum_logprob(score.sum_logprob() + static_cast<double>(token.score->logprob));
    score.set_is_greedy(score.is_greedy() && token.score->rank == 1);
  }

  void OnCancel() override { FinishAs(CancelledStatus); }

  void FinishAs(absl::Status (*status_of)(const CallRecord&)) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      status = status_of(record_);
    }
    FinishOnce(status);
  }

  // False when the call had ended before.
  bool FinishOnce(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(finished_, true)) return false;
      // Whoever has heard of the end may use the id again at once.
      registration_ = CallRegistry::Registration();
      ticket_.FreeRequestId();
      record_.status = status;
      if (stream_ != nullptr) stream_->Detach();
      if (!status.ok()) AddUsageTrailers(record_, *context_);
    }
    Finish(ToGrpcStatus(status));
    return true;
  }

  void OnDone() override {
    {
      MutexLock lock(&mutex_);
      ticket_ = Admission::Ticket();
      LogCall(record_);
    }
    // The end of this object, unless a wake-up still holds it.
    const std::shared_ptr<ScoreReactor> last = std::move(self_);
  }

  grpc::CallbackServerContext* const context_;
  v1::ScoreResponse* const response_;  // not used once finished_
  const RpcContext& rpc_;
  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<ScoreReactor> self_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  std::shared_ptr<TokenStream> stream_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
  DeadlineTimer deadline_timer_;
};

}  // namespace

grpc::ServerUnaryReactor* StartScore(grpc::CallbackServerContext* context,
                                     const v1::ScoreRequest& request, v1::ScoreResponse* response,
                                     const RpcContext& rpc) {
  // Shared: a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<ScoreReactor>(context, response, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
