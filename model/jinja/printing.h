// Values as text: Python's str() and repr().
#ifndef TLM_MODEL_JINJA_PRINTING_H_
#define TLM_MODEL_JINJA_PRINTING_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// str(value): the value itself where it is a text.
absl::StatusOr<TextPtr> ToText(Heap* heap, const Value& value);

// repr(value).
absl::StatusOr<std::string> ToRepr(Heap* heap, const Value& value);

// repr() of a float: the shortest digits that read back as the same number.
std::string FloatRepr(double value);

// repr() of a str: in quotes, with escapes.
std::string TextRepr(std::string_view text);

// markupsafe.escape: & < > ' " as entities.
std::string EscapeHtml(std::string_view text);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_PRINTING_H_
