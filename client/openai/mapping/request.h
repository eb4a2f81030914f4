// Reads the bodies of requests: OpenAI's fields, and vLLM's additions to them.
//
// Every field is either mapped, or accepted because it changes nothing (listed in
// client/openai/README.md), or refused by name. The server checks ranges that it knows better.
#ifndef TLM_CLIENT_OPENAI_MAPPING_REQUEST_H_
#define TLM_CLIENT_OPENAI_MAPPING_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/openai/mapping/json_body.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::openai {

struct MappingOptions {
  // Accept fields that are no fields of the request.
  bool ignore_unknown_fields = false;
  // Prompts of one request of /v1/completions.
  size_t max_prompts = 128;
};

// The properties of a model that the mapping depends on (ModelInfoResponse).
struct ModelTraits {
  std::string model_id;
  bool regions = false;    // output.regions works: the model has a format of calls or reasoning
  bool reasoning = false;  // the model writes reasoning before its answer
};

// A request of any route.
struct ApiRequest {
  // One per prompt. No request_id and no model: the caller sets them.
  std::vector<v1::GenerateRequest> calls;
  bool stream = false;
  bool include_usage = false;  // a last chunk with the usage
  bool logprobs = false;       // send log-probabilities of the tokens ...
  uint32_t top_logprobs = 0;   // ... and of this number of alternatives
  // /v1/completions: the answer begins with the prompt. `echoed` has the texts of prompts that are
  // texts; token ids are shown by the `prompt` events.
  bool echo = false;
  std::vector<std::string> echoed;
  // /v1/completions: the answer has no generated token; each call generates one, which is dropped.
  bool drop_output = false;
  // Calls with the same key go to the same replica.
  std::string affinity_key;
  // /v1/responses: fields of the request that the answer repeats.
  Json repeated = Json::object();

  // True if the servers label the parts of the texts. Then the first part may come after some text,
  // which may have been the beginning of markup.
  bool regions() const { return !calls.empty() && calls[0].output().regions(); }
};

// Returns the field `model`; empty if it is absent.
absl::StatusOr<std::string> ReadModel(const Json& body);

// Reads the body of a route. INVALID_ARGUMENT with the field (FieldOf in model/base/errors.h).
absl::StatusOr<ApiRequest> ReadChatRequest(const Json& body, const ModelTraits& model,
                                           const MappingOptions& options);
absl::StatusOr<ApiRequest> ReadCompletionRequest(const Json& body, const ModelTraits& model,
                                                 const MappingOptions& options);
absl::StatusOr<ApiRequest> ReadResponsesRequest(const Json& body, const ModelTraits& model,
                                                const MappingOptions& options);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_REQUEST_H_
