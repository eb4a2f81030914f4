// What templates reach with a dot, an index or a slice. Only data and the methods of this
// interpreter: there is no way from a value to the program.
#ifndef TLM_MODEL_JINJA_ACCESS_H_
#define TLM_MODEL_JINJA_ACCESS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// object.name: a method or attribute, else the member of that name, else undefined.
// INVALID_ARGUMENT when `object` is itself undefined.
absl::StatusOr<Value> GetAttribute(Heap* heap, const Value& object, std::string_view name);

// object[key]: the member or item, else the attribute or method of that name, else undefined.
absl::StatusOr<Value> GetItem(Heap* heap, const Value& object, const Value& key);

// The attribute that filters sort, map and select by: "a", "a.b", "a.0" or an index. None: `value`.
absl::StatusOr<Value> GetPath(Heap* heap, Value value, const Value& path);

// object[start:stop:step] of text, list or tuple; None stands for a bound left out.
struct SliceBounds {
  Value start = None{};
  Value stop = None{};
  Value step = None{};
};
absl::StatusOr<Value> GetSlice(Heap* heap, const Value& object, const SliceBounds& bounds);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_ACCESS_H_
