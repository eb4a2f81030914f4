#include "client/openai/routes/front.h"

#include <cmath>
#include <utility>

#include "client/openai/mapping/api_error.h"
#include "model/base/errors.h"

namespace tlm::openai {

client::CallOptions Incoming::Options(const Front& front) const {
  client::CallOptions options;
  options.timeout = front.options.timeout;
  options.cancel = exchange->cancel();
  options.metadata = caller.metadata;
  return options;
}

ResponseHead HeadFor(const Incoming& incoming, int status, std::string content_type) {
  ResponseHead head{status, std::move(content_type)};
  if (!incoming.caller.request_id.empty()) {
    head.headers.emplace_back("x-request-id", incoming.caller.request_id);
  }
  return head;
}

void RespondText(Front* front, const Incoming& incoming, int status, std::string content_type,
                 std::string body) {
  front->metrics.CountRequest(incoming.route, status);
  incoming.exchange->Respond(HeadFor(incoming, status, std::move(content_type)), std::move(body));
}

void RespondJson(Front* front, const Incoming& incoming, const Json& body) {
  RespondText(front, incoming, 200, "application/json", Written(body));
}

void RespondError(Front* front, const Incoming& incoming, const absl::Status& status) {
  const ApiError error = ApiErrorOf(status);
  ResponseHead head = HeadFor(incoming, error.status, "application/json");
  if (error.retry_after) {
    const double seconds = absl::ToDoubleSeconds(*error.retry_after);
    head.headers.emplace_back("retry-after",
                              std::to_string(std::max(1L, static_cast<long>(std::ceil(seconds)))));
    head.headers.emplace_back("retry-after-ms",
                              std::to_string(static_cast<long>(std::ceil(seconds * 1000))));
  }
  if (error.status == 401) head.headers.emplace_back("www-authenticate", "Bearer");
  front->metrics.CountRequest(incoming.route, error.status);
  incoming.exchange->Respond(std::move(head), Written(ErrorJson(error)));
}

absl::StatusOr<Chosen> ChooseBackend(Front* front, const std::string& model,
                                     const client::CallOptions& options) {
  Backend* chosen = front->backends.size() == 1 ? front->backends.front().get() : nullptr;
  if (model.empty() && chosen == nullptr) {
    return WithField(InvalidArgument("model is missing: this server has several"), "model");
  }
  for (const auto& backend : front->backends) {
    if (!model.empty() && backend->name() == model) chosen = backend.get();
  }
  if (chosen == nullptr) return ModelNotFound(model);
  if (!chosen->name().empty() && !model.empty() && chosen->name() != model) {
    return ModelNotFound(model);
  }
  TLM_ASSIGN_OR_RETURN(ModelTraits traits, chosen->Traits(options));
  if (!model.empty() && traits.model_id != model) return ModelNotFound(model);
  return Chosen{chosen, std::move(traits)};
}

}  // namespace tlm::openai
