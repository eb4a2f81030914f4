#include "client/openai/routes/generation.h"

#include <fmt/format.h>

#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "model/base/errors.h"

namespace tlm::openai {
namespace {

// A request whose calls run. Its threads share it.
class Generation {
 public:
  Generation(Front* front, Incoming incoming, Chosen chosen, ApiRequest request,
             const GenerationRoute& route, const std::string& model)
      : front_(front),
        incoming_(std::move(incoming)),
        backend_(chosen.backend),
        request_(std::move(request)),
        abort_(incoming_.exchange->cancel()),
        left_(request_.calls.size()) {
    const AnswerHead head{incoming_.caller.request_id, model, absl::ToUnixSeconds(absl::Now())};
    client::CallOptions options = Options();
    answer_ = route.make_answer(request_, head, [backend = backend_, options](uint32_t id) {
      return backend->TokenBytesOf(id, options);
    });
  }

  size_t calls() const { return request_.calls.size(); }

  // Runs a call to its end. The last one to end answers.
  void Run(size_t call) {
    absl::Status status;
    try {
      status = Events(call);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("not enough memory for the answer");
    } catch (const std::exception& error) {
      status = Internal("{}", error.what());
    }
    bool last = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (status_.ok()) status_ = status;
      last = --left_ == 0;
    }
    if (!status.ok()) abort_.Cancel();
    if (last) End();
  }

  // Answers without calls.
  void Fail(const absl::Status& status) { RespondError(front_, incoming_, status); }

 private:
  client::CallOptions Options() {
    client::CallOptions options = incoming_.Options(*front_);
    options.cancel = &abort_;
    options.affinity_key = request_.affinity_key;
    return options;
  }

  absl::Status Events(size_t call) {
    v1::GenerateRequest request = std::move(request_.calls[call]);
    request.set_request_id(calls() == 1 ? incoming_.caller.request_id
                                        : fmt::format("{}-{}", incoming_.caller.request_id, call));
    // The client library requests the ids in any case, to resume.
    request.mutable_output()->set_token_ids(true);
    const auto stream = backend_->client().StartGenerate(request, Options());
    v1::GenerateResponse event;
    while (stream->Read(&event)) {
      std::string text;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!status_.ok()) return absl::CancelledError("another call of the request failed");
        NoteTokens(event);
        TLM_RETURN_IF_ERROR(answer_->Add(call, std::move(event), &text));
        if (request_.stream && !begun_) Begin();
      }
      event.Clear();
      if (!text.empty() && !incoming_.exchange->Write(text)) break;
    }
    if (incoming_.exchange->gone()) return absl::CancelledError("the client closed the connection");
    return stream->Finish();
  }

  void NoteTokens(const v1::GenerateResponse& event) {
    if (!event.has_tokens()) return;
    const absl::Time now = absl::Now();
    front_->metrics.NoteTokens(static_cast<size_t>(event.tokens().tokens_size()), now);
    if (!std::exchange(has_token_, true)) {
      front_->metrics.ObserveFirstToken(now - incoming_.arrived);
    }
  }

  void Begin() {
    begun_ = true;
    ResponseHead head = HeadFor(incoming_, 200, "text/event-stream; charset=utf-8");
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    incoming_.exchange->BeginStream(std::move(head));
  }

  // All calls have ended: no other thread uses this object.
  void End() {
    front_->metrics.CountTokens(answer_->counts());
    if (absl::IsFailedPrecondition(status_)) backend_->ForgetTraits();
    if (!begun_) {
      if (!status_.ok()) {
        Fail(status_);
      } else {
        RespondText(front_, incoming_, 200, "application/json", answer_->Body());
      }
      return;
    }
    const ApiError error = ApiErrorOf(status_);
    const std::string text = status_.ok() ? answer_->EndOfStream() : answer_->ErrorInStream(error);
    incoming_.exchange->Write(text);
    front_->metrics.CountRequest(incoming_.route, status_.ok() ? 200 : error.status);
    incoming_.exchange->End();
  }

  Front* const front_;
  const Incoming incoming_;
  Backend* const backend_;
  ApiRequest request_;  // each call moves its own message out
  client::CancelToken abort_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::unique_ptr<Answer> answer_;
  absl::Status status_;  // the first error
  size_t left_;          // calls that have not ended
  bool begun_ = false;   // the stream's head was sent
  bool has_token_ = false;
};

absl::StatusOr<std::shared_ptr<Generation>> Prepare(Front* front, const GenerationRoute& route,
                                                    const Incoming& incoming) {
  std::string body = std::move(incoming.exchange->mutable_request().body);
  TLM_ASSIGN_OR_RETURN(const Json json, ParseBody(body));
  std::string().swap(body);
  TLM_ASSIGN_OR_RETURN(const std::string model, ReadModel(json));
  TLM_ASSIGN_OR_RETURN(Chosen chosen, ChooseBackend(front, model, incoming.Options(*front)));
  TLM_ASSIGN_OR_RETURN(ApiRequest request, route.read(json, chosen.traits, front->options.mapping));
  const std::string name = model.empty() ? chosen.traits.model_id : model;
  return std::make_shared<Generation>(front, incoming, std::move(chosen), std::move(request), route,
                                      name);
}

}  // namespace

void RunGeneration(Front* front, const GenerationRoute& route, Incoming incoming) {
  absl::StatusOr<std::shared_ptr<Generation>> prepared;
  try {
    prepared = Prepare(front, route, incoming);
  } catch (const std::bad_alloc&) {
    prepared = ResourceExhausted("not enough memory for the request");
  } catch (const std::exception& error) {
    prepared = Internal("{}", error.what());
  }
  if (!prepared.ok()) {
    RespondError(front, incoming, prepared.status());
    return;
  }
  const std::shared_ptr<Generation> generation = *std::move(prepared);
  std::vector<CallPool::Task> others;
  for (size_t i = 1; i < generation->calls(); ++i) {
    others.push_back([generation, i] { generation->Run(i); });
  }
  if (!others.empty() && !front->calls.Submit(std::move(others))) {
    generation->Fail(WithRetryAfter(
        WithReason(ResourceExhausted("the request has {} prompts, and too many calls wait already",
                                     generation->calls()),
                   "QUEUE_FULL"),
        absl::Seconds(1)));
    return;
  }
  generation->Run(0);
}

}  // namespace tlm::openai
