// str.format: '{} and {name!r:>8}'.format(1, name=2).
#ifndef TLM_MODEL_JINJA_TEXT_FORMAT_H_
#define TLM_MODEL_JINJA_TEXT_FORMAT_H_

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// INVALID_ARGUMENT where Python raises; UNIMPLEMENTED for fields within format specifications.
absl::StatusOr<Value> FormatBraces(Heap* heap, const TextPtr& format, const Arguments& arguments);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_TEXT_FORMAT_H_
