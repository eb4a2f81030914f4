// Answers of /v1/completions.
#include <algorithm>
#include <optional>
#include <utility>

#include "client/openai/mapping/answer.h"
#include "client/openai/mapping/logprobs.h"
#include "model/base/errors.h"

namespace tlm::openai {
namespace {

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(const ApiRequest& request, const AnswerHead& head, TokenBytes token_bytes)
      : request_(WithoutCalls(request)), head_(head), token_bytes_(std::move(token_bytes)) {
    calls_.resize(request.calls.size());
    const uint32_t n = request.calls.empty() ? 1 : request.calls.front().sampling().num_sequences();
    choices_per_call_ = std::max(n, 1U);
    for (size_t i = 0; i < calls_.size() * choices_per_call_; ++i) {
      choices_.emplace_back(request_.top_logprobs > 0, token_bytes_);
    }
  }

  absl::Status Add(size_t call, v1::GenerateResponse event, std::string* stream) override {
    if (event.has_started()) {
      fingerprint_ = event.started().fingerprint();
    } else if (event.has_prompt()) {
      calls_[call].prompt.MergeFrom(event.prompt().tokens());
    } else if (event.has_tokens()) {
      return AddTokens(call, event.tokens(), stream);
    } else if (event.has_finished()) {
      return AddFinished(call, event.finished(), stream);
    } else if (event.has_summary()) {
      v1::Usage usage = event.summary().usage();
      if (request_.drop_output) usage.set_completion_tokens(0);
      AddUsage(usage, &counts_);
    }
    return absl::OkStatus();
  }

  std::string EndOfStream() override {
    std::string end;
    if (request_.include_usage) {
      Json chunk = Head();
      chunk["choices"] = Json::array();
      chunk["usage"] = UsageJson(counts_);
      end = ServerSentEvent(chunk);
    }
    return end + "data: [DONE]\n\n";
  }

  std::string Body() override {
    Json choices = Json::array();
    for (Choice& choice : choices_) choices.push_back(ChoiceJson(choices.size(), &choice));
    Json body = Head();
    body["choices"] = std::move(choices);
    body["usage"] = UsageJson(counts_);
    return Written(body);
  }

  const TokenCounts& counts() const override { return counts_; }

 private:
  struct Call {
    TokenInfos prompt;  // with their log-probabilities, if they were requested
  };
  struct Choice {
    Choice(bool alternatives, const TokenBytes& token_bytes)
        : logprobs(alternatives, token_bytes) {}

    bool begun = false;  // the prompt is in `text`
    std::string text;    // not yet sent
    CompletionLogprobs logprobs;
    std::optional<v1::GenerateFinished> finished;
  };

  static ApiRequest WithoutCalls(const ApiRequest& request) {
    ApiRequest copy;
    copy.stream = request.stream;
    copy.include_usage = request.include_usage;
    copy.logprobs = request.logprobs;
    copy.top_logprobs = request.top_logprobs;
    copy.echo = request.echo;
    copy.echoed = request.echoed;
    copy.drop_output = request.drop_output;
    return copy;
  }

  Json Head() const {
    return {{"id", "cmpl-" + head_.id},
            {"object", "text_completion"},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", fingerprint_}};
  }

  absl::StatusOr<size_t> IndexOf(size_t call, uint32_t output) const {
    if (output >= choices_per_call_) {
      return Internal("the server sent output {} of {}", output, choices_per_call_);
    }
    return call * choices_per_call_ + output;
  }

  // Puts the prompt before the first text of a choice.
  void Begin(size_t call, Choice* choice) {
    if (std::exchange(choice->begun, true) || !request_.echo) return;
    const TokenInfos& prompt = calls_[call].prompt;
    choice->text = request_.echoed[call];
    if (choice->text.empty()) {
      for (const v1::TokenInfo& token : prompt) choice->text += token.bytes();
    }
    if (request_.logprobs) choice->logprobs.Add(prompt);
  }

  absl::Status AddTokens(size_t call, const v1::GenerateTokens& tokens, std::string* stream) {
    TLM_ASSIGN_OR_RETURN(const size_t index, IndexOf(call, tokens.output_index()));
    Choice& choice = choices_[index];
    Begin(call, &choice);
    if (!request_.drop_output) {
      choice.text += tokens.text();
      if (request_.logprobs) choice.logprobs.Add(tokens.tokens());
    }
    if (request_.stream) *stream += ChunkText(index, &choice);
    return absl::OkStatus();
  }

  absl::Status AddFinished(size_t call, const v1::GenerateFinished& finished, std::string* stream) {
    TLM_ASSIGN_OR_RETURN(const size_t index, IndexOf(call, finished.output_index()));
    Choice& choice = choices_[index];
    Begin(call, &choice);
    choice.finished = finished;
    if (request_.drop_output) choice.finished->set_reason(v1::FINISH_REASON_LENGTH);
    if (request_.stream) *stream += ChunkText(index, &choice);
    return absl::OkStatus();
  }

  // Empties `choice`'s text and log-probabilities.
  Json ChoiceJson(size_t index, Choice* choice) {
    const bool ended = choice->finished.has_value();
    Json json = {
        {"index", index},
        {"text", std::exchange(choice->text, "")},
        {"logprobs", request_.logprobs ? choice->logprobs.Take() : Json()},
        {"finish_reason", ended ? Json(FinishReasonName(choice->finished->reason())) : Json()}};
    const Json stop = ended ? StopReason(*choice->finished) : Json();
    if (!stop.is_null()) json["stop_reason"] = stop;
    return json;
  }

  std::string ChunkText(size_t index, Choice* choice) {
    Json chunk = Head();
    chunk["choices"] = Json::array({ChoiceJson(index, choice)});
    if (request_.include_usage) chunk["usage"] = nullptr;
    return ServerSentEvent(chunk);
  }

  const ApiRequest request_;  // without calls
  const AnswerHead head_;
  const TokenBytes token_bytes_;
  std::string fingerprint_;
  TokenCounts counts_;
  uint32_t choices_per_call_ = 1;
  std::vector<Call> calls_;
  std::vector<Choice> choices_;  // of the first call, of the second, ...
};

}  // namespace

std::unique_ptr<Answer> MakeCompletionAnswer(const ApiRequest& request, const AnswerHead& head,
                                             TokenBytes token_bytes) {
  return std::make_unique<CompletionAnswer>(request, head, std::move(token_bytes));
}

}  // namespace tlm::openai
