// Python's printf-style formatting: '%s, %d' % (name, count).
#ifndef TLM_MODEL_JINJA_PERCENT_FORMAT_H_
#define TLM_MODEL_JINJA_PERCENT_FORMAT_H_

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// `arguments`: a tuple of them, a dict for %(name)s, or a single one. INVALID_ARGUMENT where Python
// raises; UNIMPLEMENTED for a width or precision of '*' and for %a and %c.
absl::StatusOr<Value> PercentFormat(Heap* heap, const TextPtr& format, const Value& arguments);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_PERCENT_FORMAT_H_
