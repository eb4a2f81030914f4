// JSON as the values of a rendering.
#ifndef TLM_MODEL_JINJA_JSON_VALUE_H_
#define TLM_MODEL_JINJA_JSON_VALUE_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// json.loads(text): objects keep the order of their keys; of a key that occurs twice the last value
// counts, at the first one's place. INVALID_ARGUMENT, with line and column, for text that is not
// JSON (Python's NaN and Infinity are none), for nesting beyond kMaxJsonDepth, numbers no double
// can hold and integers beyond 64 bits; RESOURCE_EXHAUSTED as the heap says.
absl::StatusOr<Value> ParseJson(Heap* heap, std::string_view text);

// Objects have their keys in alphabetical order, since nlohmann::json keeps no other.
// INVALID_ARGUMENT for text that is not UTF-8 and integers beyond 64 bits.
absl::StatusOr<Value> FromJson(Heap* heap, const nlohmann::json& source);

// INVALID_ARGUMENT when it is not valid UTF-8.
absl::StatusOr<Value> TextFrom(Heap* heap, std::string_view text);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_JSON_VALUE_H_
