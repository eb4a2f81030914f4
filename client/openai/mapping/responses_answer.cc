// Answers of /v1/responses.
#include <fmt/format.h>

#include <utility>

#include "client/openai/mapping/answer.h"
#include "client/openai/mapping/logprobs.h"
#include "model/base/errors.h"

namespace tlm::openai {
namespace {

enum class ItemKind { kReasoning, kMessage, kCall };

// An item of `output`, as far as it is known.
struct Item {
  ItemKind kind;
  std::string id;
  std::string text;  // of a call: the arguments
  std::string name;
  std::string call_id;
  Json logprobs = Json::array();
};

// Makes the items from the events, and the server-sent events of a stream.
class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(const ApiRequest& request, const AnswerHead& head, TokenBytes token_bytes)
      : stream_(request.stream),
        logprobs_(request.logprobs),
        repeated_(request.repeated),
        head_(head),
        token_bytes_(std::move(token_bytes)),
        has_regions_(request.regions()) {}

  absl::Status Add(size_t, v1::GenerateResponse event, std::string* stream) override {
    if (event.has_started()) {
      for (const char* const name : {"response.created", "response.in_progress"}) {
        Send(name, {{"response", Response("in_progress")}}, stream);
      }
    } else if (event.has_tokens()) {
      if (event.tokens().output_index() != 0) {
        return Internal("the server sent output {} of 1", event.tokens().output_index());
      }
      AddTokens(event.tokens(), stream);
    } else if (event.has_finished()) {
      AddRegions(event.finished().regions(), stream);
      reason_ = FinishReasonName(event.finished().reason());
      Close(stream, reason_ == "stop");
    } else if (event.has_summary()) {
      AddUsage(event.summary().usage(), &counts_);
    }
    return absl::OkStatus();
  }

  std::string EndOfStream() override {
    std::string end;
    const std::string status = Status();
    Send("response." + status, {{"response", Response(status)}}, &end);
    return end;
  }

  std::string Body() override { return Written(Response(Status())); }

  std::string ErrorInStream(const ApiError& error) const override {
    const auto text_or_null = [](const std::string& text) {
      return text.empty() ? Json() : Json(text);
    };
    return ServerSentEvent({{"type", "error"},
                            {"sequence_number", sequence_},
                            {"code", error.code.empty() ? Json(error.type) : Json(error.code)},
                            {"message", error.message},
                            {"param", text_or_null(error.param)}},
                           "error");
  }

  const TokenCounts& counts() const override { return counts_; }

 private:
  std::string Status() const { return reason_ == "stop" ? "completed" : "incomplete"; }

  void Send(const std::string& type, const Json& fields, std::string* stream) {
    if (!stream_) return;
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    *stream += ServerSentEvent(event, type);
  }

  Json Response(const std::string& status) const {
    const bool ended = status != "in_progress";
    Json response = {{"id", "resp_" + head_.id},
                     {"object", "response"},
                     {"created_at", head_.created},
                     {"status", status},
                     {"background", false},
                     {"error", nullptr},
                     {"incomplete_details",
                      status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()},
                     {"model", head_.model},
                     {"output", Json::array()},
                     {"previous_response_id", nullptr},
                     {"store", false},
                     {"truncation", "disabled"},
                     {"usage", ended ? Usage() : Json()}};
    response.update(repeated_);
    if (ended) {
      for (size_t i = 0; i < items_.size(); ++i) {
        const bool last = i + 1 == items_.size();
        response["output"].push_back(ItemJson(items_[i], last ? status : "completed"));
      }
    }
    return response;
  }

  Json Usage() const {
    return {{"input_tokens", counts_.prompt},
            {"input_tokens_details", {{"cached_tokens", counts_.cached}}},
            {"output_tokens", counts_.completion},
            {"output_tokens_details", {{"reasoning_tokens", counts_.reasoning}}},
            {"total_tokens", counts_.prompt + counts_.completion}};
  }

  static Json PartJson(const Item& item) {
    if (item.kind == ItemKind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
    return {{"type", "output_text"},
            {"text", item.text},
            {"annotations", Json::array()},
            {"logprobs", item.logprobs}};
  }

  // Without content while it is in progress.
  static Json ItemJson(const Item& item, const std::string& status) {
    const bool begins = status == "in_progress";
    const Json content = begins ? Json::array() : Json::array({PartJson(item)});
    switch (item.kind) {
      case ItemKind::kReasoning:
        return {{"type", "reasoning"},
                {"id", item.id},
                {"summary", Json::array()},
                {"content", content},
                {"status", status}};
      case ItemKind::kMessage:
        return {{"type", "message"},
                {"id", item.id},
                {"status", status},
                {"role", "assistant"},
                {"content", content}};
      case ItemKind::kCall:
        break;
    }
    return {{"type", "function_call"}, {"id", item.id},          {"call_id", item.call_id},
            {"name", item.name},       {"arguments", item.text}, {"status", status}};
  }

  // The members that events of the open item have.
  Json Place(const Json& more) const {
    Json place = {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
    place.update(more);
    return place;
  }

  // Opens an item, unless the open one is of this kind and may go on.
  void Open(ItemKind kind, std::string* stream) {
    if (open_ && items_.back().kind == kind && kind != ItemKind::kCall) return;
    Close(stream, true);
    const char* const prefix = kind == ItemKind::kReasoning ? "rs"
                               : kind == ItemKind::kMessage ? "msg"
                                                            : "fc";
    items_.push_back({kind, fmt::format("{}_{}_{}", prefix, head_.id, items_.size()), "", "", ""});
    open_ = true;
  }

  // Announces the item that Open made.
  void Announce(std::string* stream) {
    const Item& item = items_.back();
    Send("response.output_item.added",
         {{"output_index", items_.size() - 1}, {"item", ItemJson(item, "in_progress")}}, stream);
    if (item.kind == ItemKind::kCall) return;
    Send("response.content_part.added", Place({{"content_index", 0}, {"part", PartJson(item)}}),
         stream);
  }

  void Close(std::string* stream, bool complete) {
    if (!std::exchange(open_, false)) return;
    const Item& item = items_.back();
    if (item.kind == ItemKind::kCall) {
      Send("response.function_call_arguments.done",
           Place({{"name", item.name}, {"arguments", item.text}}), stream);
    } else if (item.kind == ItemKind::kReasoning) {
      Send("response.reasoning_text.done", Place({{"content_index", 0}, {"text", item.text}}),
           stream);
    } else {
      Send("response.output_text.done",
           Place({{"content_index", 0}, {"text", item.text}, {"logprobs", item.logprobs}}), stream);
    }
    if (item.kind != ItemKind::kCall) {
      Send("response.content_part.done", Place({{"content_index", 0}, {"part", PartJson(item)}}),
           stream);
    }
    Send("response.output_item.done",
         {{"output_index", items_.size() - 1},
          {"item", ItemJson(item, complete ? "completed" : "incomplete")}},
         stream);
  }

  void AddTokens(const v1::GenerateTokens& tokens, std::string* stream) {
    // Log-probabilities are told of texts alone.
    Json logprobs = Json::array();
    bool only_text = true;
    for (const v1::RegionEvent& event : tokens.regions()) {
      has_regions_ = true;
      only_text = only_text && event.has_delta() && event.delta().kind() == v1::REGION_KIND_TEXT;
    }
    if (logprobs_ && only_text) logprobs = ChatLogprobs(tokens.tokens(), token_bytes_);
    if (!has_regions_) {
      AddText(ItemKind::kMessage, tokens.text(), std::move(logprobs), stream);
      return;
    }
    pending_logprobs_ = std::move(logprobs);
    AddRegions(tokens.regions(), stream);
  }

  void AddRegions(const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events,
                  std::string* stream) {
    for (const v1::RegionEvent& event : events) {
      if (event.has_started() && event.started().has_tool_call()) {
        Open(ItemKind::kCall, stream);
        items_.back().name = event.started().tool_call().name();
        items_.back().call_id = event.started().tool_call().id();
        Announce(stream);
      } else if (event.has_delta()) {
        AddDelta(event.delta(), stream);
      } else if (event.has_finished()) {
        Close(stream, event.finished().complete());
      }
    }
  }

  void AddDelta(const v1::RegionEvent::Delta& delta, std::string* stream) {
    if (delta.kind() == v1::REGION_KIND_TOOL_CALL) {
      if (!open_ || delta.arguments_json().empty()) return;
      items_.back().text += delta.arguments_json();
      Send("response.function_call_arguments.delta", Place({{"delta", delta.arguments_json()}}),
           stream);
      return;
    }
    const bool reasons = delta.kind() == v1::REGION_KIND_REASONING;
    AddText(reasons ? ItemKind::kReasoning : ItemKind::kMessage, delta.text(),
            std::exchange(pending_logprobs_, Json::array()), stream);
  }

  void AddText(ItemKind kind, const std::string& text, Json logprobs, std::string* stream) {
    if (text.empty() && logprobs.empty()) return;
    const size_t before = items_.size();
    Open(kind, stream);
    if (items_.size() > before) Announce(stream);
    Item& item = items_.back();
    item.text += text;
    Json delta = Place({{"content_index", 0}, {"delta", text}});
    if (kind == ItemKind::kMessage) {
      for (const Json& entry : logprobs) item.logprobs.push_back(entry);
      delta["logprobs"] = std::move(logprobs);
    }
    Send(
        kind == ItemKind::kMessage ? "response.output_text.delta" : "response.reasoning_text.delta",
        delta, stream);
  }

  const bool stream_;
  const bool logprobs_;
  const Json repeated_;
  const AnswerHead head_;
  const TokenBytes token_bytes_;
  TokenCounts counts_;
  std::vector<Item> items_;
  bool open_ = false;  // the last item goes on
  bool has_regions_;
  Json pending_logprobs_ = Json::array();
  std::string reason_;
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Answer> MakeResponsesAnswer(const ApiRequest& request, const AnswerHead& head,
                                            TokenBytes token_bytes) {
  return std::make_unique<ResponsesAnswer>(request, head, std::move(token_bytes));
}

}  // namespace tlm::openai
