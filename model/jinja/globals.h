// The functions that every template can call: range, dict, namespace, raise_exception,
// strftime_now.
#ifndef TLM_MODEL_JINJA_GLOBALS_H_
#define TLM_MODEL_JINJA_GLOBALS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// strftime_now reads `clock`; it and `heap` must outlive the functions.
absl::StatusOr<std::vector<std::pair<std::string, Value>>> MakeGlobals(Heap* heap, Clock* clock);

// True if `status` comes from raise_exception: its message is the template's own.
bool IsRaisedByTemplate(const absl::Status& status);

// INVALID_ARGUMENT for names with a leading underscore, which namespaces refuse.
absl::Status CheckNamespaceName(std::string_view name);

// Formats like Python's datetime.strftime in the local time zone. INVALID_ARGUMENT for more than 4
// KiB.
absl::StatusOr<std::string> FormatTime(absl::Time time, const std::string& format);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_GLOBALS_H_
