// Converts JSON to the values of a rendering.
#ifndef TLM_MODEL_JINJA_JSON_VALUE_H_
#define TLM_MODEL_JINJA_JSON_VALUE_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Evaluates json.loads(text): objects keep the order of their keys; if a key occurs twice, the last
// value counts, at the place of the first. INVALID_ARGUMENT, with line and column, for text that is
// not JSON (Python's NaN and Infinity are not), for nesting beyond kMaxJsonDepth, numbers that no
// double can hold and integers beyond 64 bits; RESOURCE_EXHAUSTED when the heap returns it.
absl::StatusOr<Value> ParseJson(Heap* heap, std::string_view text);

// Converts `source`. Its keys come in alphabetical order, since nlohmann::json keeps no other.
// INVALID_ARGUMENT for text that is not UTF-8 and integers beyond 64 bits.
absl::StatusOr<Value> FromJson(Heap* heap, const nlohmann::json& source);

// INVALID_ARGUMENT when it is not valid UTF-8.
absl::StatusOr<Value> TextFrom(Heap* heap, std::string_view text);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_JSON_VALUE_H_
