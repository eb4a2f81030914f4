// Jinja's filters and tests: value|name(arguments) and value is name(arguments).
#ifndef TLM_MODEL_JINJA_FILTERS_H_
#define TLM_MODEL_JINJA_FILTERS_H_

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/parameters.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);

// INVALID_ARGUMENT where Python raises and for names that are none.
absl::StatusOr<Value> ApplyFilter(Heap* heap, std::string_view name, const Value& value,
                                  Arguments arguments);
absl::StatusOr<bool> ApplyTest(Heap* heap, std::string_view name, const Value& value,
                               Arguments arguments);

// The filters by what they work on.
struct Filter {
  std::string_view name;
  Parameters parameters;
  absl::StatusOr<Value> (*function)(Heap* heap, const Value& value, const BoundArguments& args);
};
std::span<const Filter> TextFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SequenceFilters();

// Those that take whatever arguments there are and hand them on: map, select, format ...
struct VariadicFilter {
  std::string_view name;
  absl::StatusOr<Value> (*function)(Heap* heap, const Value& value, Arguments arguments);
};
std::span<const VariadicFilter> SelectionFilters();

// The attribute filters sort, map and select by: "a", "a.b", "a.0" or an index. None: the value.
absl::StatusOr<Value> GetPath(Heap* heap, Value value, const Value& path);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_FILTERS_H_
