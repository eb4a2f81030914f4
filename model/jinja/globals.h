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

// `clock` is what strftime_now reads; it and `heap` outlive the functions.
absl::StatusOr<std::vector<std::pair<std::string, Value>>> MakeGlobals(Heap* heap, Clock* clock);

// Whether `status` comes from raise_exception: its message is the template's own.
bool IsRaisedByTemplate(const absl::Status& status);

// INVALID_ARGUMENT for names with a leading underscore, which namespaces refuse.
absl::Status CheckNamespaceName(std::string_view name);

// datetime.strftime of `time` in the local time zone. INVALID_ARGUMENT when it has more than 4 KiB.
absl::StatusOr<std::string> FormatTime(absl::Time time, const std::string& format);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_GLOBALS_H_
