// Fields that several routes have.
#ifndef TLM_CLIENT_OPENAI_MAPPING_COMMON_FIELDS_H_
#define TLM_CLIENT_OPENAI_MAPPING_COMMON_FIELDS_H_

#include <string>

#include "client/openai/mapping/fields.h"
#include "client/openai/mapping/request.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::openai {

// Bounds of lists and maps; the server's limits are lower.
inline constexpr size_t kMaxListed = size_t{1} << 20;
// The largest n.
inline constexpr uint32_t kMaxChoices = 1024;

// temperature, top_p, top_k (-1 = all), min_p, typical_p, the penalties, seed, n, logit_bias,
// allowed_token_ids.
void ReadSampling(Fields* body, v1::GenerateRequest* request);

// stop, stop_token_ids, min_tokens, ignore_eos, include_stop_str_in_output.
void ReadStopping(Fields* body, v1::GenerateRequest* request);

// response_format, regex, grammar, guided_json, guided_regex, guided_choice, guided_grammar,
// structured_outputs: one at most.
void ReadConstraint(Fields* body, v1::GenerateRequest* request);

// A response format, or the `text.format` of /v1/responses: {"type": "text" | "json_object" |
// "json_schema", ...}. With `nested` the schema is in a member "json_schema".
void ReadFormat(Fields* format, bool nested, v1::GenerateRequest* request);

// stream, stream_options, priority (as in vLLM: the smallest first), cache_salt, prompt_cache_key,
// truncate_prompt_tokens, add_special_tokens, and fields that change nothing or are refused by
// every route.
void ReadDelivery(Fields* body, v1::GenerateRequest* request, ApiRequest* api);

// Returns a JSON Schema as text: an object, or a boolean.
std::string SchemaText(const Json& schema, std::string_view key, Fields* fields);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_COMMON_FIELDS_H_
