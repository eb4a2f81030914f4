#include "client/openai/routes/models.h"

#include <algorithm>

#include "client/openai/mapping/api_error.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm::openai {
namespace {

// Asks the servers each time, with the caller's key: a stranger does not get the names.
absl::StatusOr<Json> ModelJson(Front* front, const Incoming& incoming, Backend* backend) {
  const auto info = backend->client().ModelInfo({}, incoming.Options(*front));
  if (!info.ok()) return info.status();
  return Json{{"id", backend->name().empty() ? info->identity().model_id() : backend->name()},
              {"object", "model"},
              {"created", front->started_at},
              {"owned_by", "tlm"},
              {"max_model_len", info->limits().max_context_tokens()}};
}

}  // namespace

void ListModels(Front* front, const Incoming& incoming) {
  Json models = Json::array();
  for (const auto& backend : front->backends) {
    auto model = ModelJson(front, incoming, backend.get());
    // Models whose servers are down are not listed, unless all are.
    const bool skips = absl::IsUnavailable(model.status()) && front->backends.size() > 1;
    if (!model.ok() && !skips) return RespondError(front, incoming, model.status());
    if (model.ok()) models.push_back(*std::move(model));
  }
  RespondJson(front, incoming, {{"object", "list"}, {"data", std::move(models)}});
}

void OneModel(Front* front, const Incoming& incoming) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string id = incoming.exchange->request().path.substr(kPrefix.size());
  const auto chosen = ChooseBackend(front, id, incoming.Options(*front));
  if (!chosen.ok()) return RespondError(front, incoming, chosen.status());
  const auto model = ModelJson(front, incoming, chosen->backend);
  if (!model.ok()) return RespondError(front, incoming, model.status());
  RespondJson(front, incoming, *model);
}

void Health(Front* front, const Incoming& incoming) {
  client::CallOptions options = incoming.Options(*front);
  options.timeout = std::min(options.timeout, absl::Seconds(2));
  for (const auto& backend : front->backends) {
    const absl::Status serving = backend->client().WaitUntilServing("", options);
    if (serving.ok()) continue;
    const std::string which = backend->name().empty() ? "the model" : Quoted(backend->name());
    return RespondError(front, incoming,
                        WithRetryAfter(Unavailable("no replica of {} serves: {}", which,
                                                   std::string(serving.message())),
                                       absl::Seconds(1)));
  }
  RespondJson(front, incoming, {{"status", "ok"}});
}

}  // namespace tlm::openai
