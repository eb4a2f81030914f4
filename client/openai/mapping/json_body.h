// Parses the JSON body of a request, and writes JSON.
#ifndef TLM_CLIENT_OPENAI_MAPPING_JSON_BODY_H_
#define TLM_CLIENT_OPENAI_MAPPING_JSON_BODY_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::openai {

// Keeps the order of members: the keys of a tool's schema reach the model's template in this order.
using Json = nlohmann::ordered_json;

// Levels of arrays and objects in a body.
inline constexpr int kMaxBodyDepth = 64;

// Parses one JSON object. INVALID_ARGUMENT for text that is not JSON (the message gives line and
// column), another kind of value, a key that occurs twice in an object, a number that no double can
// hold, or more than kMaxBodyDepth levels. The caller bounds the length of the text; the value
// takes at most about 25 times as much memory.
absl::StatusOr<Json> ParseBody(std::string_view text);

// Returns the value as compact JSON. Bytes that are not UTF-8 become U+FFFD.
std::string Written(const Json& value);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_JSON_BODY_H_
