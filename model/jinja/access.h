// Access by a dot, an index or a slice. Templates reach only data and the methods of this
// interpreter: there is no way from a value to the program.
#ifndef TLM_MODEL_JINJA_ACCESS_H_
#define TLM_MODEL_JINJA_ACCESS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Evaluates object.name: a method or attribute, otherwise the member of that name, otherwise
// undefined. INVALID_ARGUMENT when `object` is itself undefined.
absl::StatusOr<Value> GetAttribute(Heap* heap, const Value& object, std::string_view name);

// Evaluates object[key]: the member or item, otherwise the attribute or method of that name,
// otherwise undefined.
absl::StatusOr<Value> GetItem(Heap* heap, const Value& object, const Value& key);

// Returns the attribute that the filters sort, map and select use: "a", "a.b", "a.0" or an index.
// For the path None it is `value`.
absl::StatusOr<Value> GetPath(Heap* heap, Value value, const Value& path);

// Evaluates object[start:stop:step] of a text, list or tuple; an omitted bound is None.
struct SliceBounds {
  Value start = None{};
  Value stop = None{};
  Value step = None{};
};
absl::StatusOr<Value> GetSlice(Heap* heap, const Value& object, const SliceBounds& bounds);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_ACCESS_H_
