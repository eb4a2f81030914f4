// JSON as values of a template.
#ifndef TLM_MODEL_JINJA_JSON_VALUES_H_
#define TLM_MODEL_JINJA_JSON_VALUES_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Objects have their keys in alphabetical order, since nlohmann::json keeps no other. Whole numbers
// are ints. INVALID_ARGUMENT for text that is not UTF-8 and integers beyond 64 bits.
absl::StatusOr<Value> FromJson(Heap* heap, const nlohmann::json& json);

// INVALID_ARGUMENT when it is not valid UTF-8.
absl::StatusOr<Value> CheckedText(Heap* heap, const std::string& text);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_JSON_VALUES_H_
