// Runs the Generate calls of a request and answers it.
#ifndef TLM_CLIENT_OPENAI_ROUTES_GENERATION_H_
#define TLM_CLIENT_OPENAI_ROUTES_GENERATION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/openai/mapping/answer.h"
#include "client/openai/mapping/request.h"
#include "client/openai/routes/front.h"

namespace tlm::openai {

// The mapping of a route.
struct GenerationRoute {
  absl::StatusOr<ApiRequest> (*read)(const Json& body, const ModelTraits& model,
                                     const MappingOptions& options);
  std::unique_ptr<Answer> (*make_answer)(const ApiRequest& request, const AnswerHead& head,
                                         TokenBytes token_bytes);
};

// Reads the request and runs its calls: the first in this thread, which must be one of
// front->calls, the others in further ones. Always answers the exchange.
void RunGeneration(Front* front, const GenerationRoute& route, Incoming incoming);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_GENERATION_H_
