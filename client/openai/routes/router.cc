#include "client/openai/routes/router.h"

#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "client/openai/routes/generation.h"
#include "client/openai/routes/models.h"
#include "client/openai/routes/page.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm::openai {
namespace {

constexpr char kModelPrefix[] = "/v1/models/";

struct Post {
  std::string_view path;
  GenerationRoute route;
};
constexpr Post kPosts[] = {
    {"/v1/chat/completions", {ReadChatRequest, MakeChatAnswer}},
    {"/v1/completions", {ReadCompletionRequest, MakeCompletionAnswer}},
    {"/v1/responses", {ReadResponsesRequest, MakeResponsesAnswer}},
};

struct Get {
  std::string_view path;
  void (*run)(Front* front, const Incoming& incoming);
};
constexpr Get kGets[] = {
    {"/v1/models", ListModels},          {"/health", Health},          {"/", Page},
    {"/page/model_info", PageModelInfo}, {"/page/status", PageStatus},
};

const Post* FindPost(std::string_view path) {
  for (const Post& post : kPosts) {
    if (post.path == path) return &post;
  }
  return nullptr;
}

// The route's name in metrics.
std::string RouteOf(std::string_view path) {
  if (FindPost(path) != nullptr || path == "/metrics") return std::string(path);
  for (const Get& get : kGets) {
    if (get.path == path) return std::string(path);
  }
  return path.starts_with(kModelPrefix) ? "/v1/models/{id}" : "other";
}

absl::Status CheckJson(const HttpRequest& request) {
  const std::string type = request.Header("content-type");
  // A page of another site can send other types without the browser's asking first (CORS).
  if (type.starts_with("application/json")) return absl::OkStatus();
  return WithField(InvalidArgument("Content-Type is {}, it must be application/json", Quoted(type)),
                   "content-type");
}

absl::Status TooManyCalls() {
  return WithRetryAfter(
      WithReason(ResourceExhausted("too many calls wait for one of the --max_calls threads"),
                 "QUEUE_FULL"),
      absl::Seconds(1));
}

}  // namespace

void Router::Handle(const HttpServer& server, std::shared_ptr<Exchange> exchange) {
  Incoming incoming{std::move(exchange), "", absl::Now(), {}};
  const HttpRequest& request = incoming.exchange->request();
  incoming.route = RouteOf(request.path);
  const FrontOptions& options = front_->options;
  bool passes_keys = options.encrypted || options.allow_plaintext_keys;
  if (!passes_keys) {
    passes_keys = true;
    for (const auto& backend : front_->backends) passes_keys &= backend->is_local();
  }
  auto caller = CallerOf(request, options.own_key, passes_keys);
  if (!caller.ok()) {
    RespondError(front_, incoming, caller.status());
    return;
  }
  incoming.caller = *std::move(caller);
  Dispatch(server, std::move(incoming));
}

void Router::Dispatch(const HttpServer& server, Incoming incoming) {
  const HttpRequest& request = incoming.exchange->request();
  const Post* const post = FindPost(request.path);
  if ((post != nullptr) != (request.method == "POST") && incoming.route != "other") {
    RespondText(front_, incoming, 405, "application/json",
                Written(ErrorJson({.status = 405,
                                   .message = request.path + " is for " +
                                              (post != nullptr ? "POST" : "GET") + " alone",
                                   .type = "invalid_request_error",
                                   .param = "",
                                   .code = "method_not_allowed",
                                   .retry_after = {}})));
  } else if (post != nullptr) {
    if (const absl::Status json = CheckJson(request); !json.ok()) {
      RespondError(front_, incoming, json);
      return;
    }
    const bool queued = front_->calls.Submit(
        {[front = front_, post, incoming] { RunGeneration(front, post->route, incoming); }});
    if (!queued) RespondError(front_, incoming, TooManyCalls());
  } else if (request.path == "/metrics") {
    Metrics(server, incoming);
  } else if (request.path == "/health" && draining_) {
    RespondError(front_, incoming, Unavailable("the program ends"));
  } else if (request.path.starts_with(kModelPrefix)) {
    Query(std::move(incoming), &OneModel);
  } else {
    for (const Get& get : kGets) {
      if (get.path == request.path) return Query(std::move(incoming), get.run);
    }
    RespondError(front_, incoming,
                 WithReason(NotFound("there is no {} {}", request.method, Quoted(request.path)),
                            "unknown_url"));
  }
}

void Router::Query(Incoming incoming, void (*run)(Front* front, const Incoming& incoming)) {
  const bool queued = front_->queries.Submit({[front = front_, run, incoming] {
    try {
      run(front, incoming);
    } catch (const std::exception& error) {
      RespondError(front, incoming, Internal("{}", error.what()));
    }
  }});
  if (!queued) RespondError(front_, incoming, TooManyCalls());
}

void Router::Metrics(const HttpServer& server, const Incoming& incoming) {
  front_->metrics.SetState(server.connections(), server.exchanges(), front_->calls.running(),
                           front_->calls.queued());
  RespondText(front_, incoming, 200, "text/plain; version=0.0.4; charset=utf-8",
              front_->metrics.Text());
}

}  // namespace tlm::openai
