// Converts values to text: Python's str(), repr() and json.dumps().
#ifndef TLM_MODEL_JINJA_PRINTING_H_
#define TLM_MODEL_JINJA_PRINTING_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Evaluates str(value); a text is returned unchanged.
absl::StatusOr<TextPtr> ToText(Heap* heap, const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  // The indentation of a level; if unset, everything is on one line.
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// INVALID_ARGUMENT for values that JSON cannot express, such as undefined ones.
absl::StatusOr<std::string> ToJson(Heap* heap, const Value& value, const JsonOptions& options);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_PRINTING_H_
