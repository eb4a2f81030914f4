// What templates reach with a dot, an index or a slice. Only data and the methods of this
// interpreter: there is no way from a value to the program.
#ifndef TLM_MODEL_JINJA_ACCESS_H_
#define TLM_MODEL_JINJA_ACCESS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// object.name: a method or attribute, else the member of that name, else undefined. Methods that
// change a value are undefined, as in Jinja's immutable sandbox. INVALID_ARGUMENT when `object` is
// itself undefined; UNIMPLEMENTED for methods of Python that are not here.
absl::StatusOr<Value> GetAttribute(Heap* heap, const Value& object, std::string_view name);

// object[key]: the member or item, else the attribute or method of that name, else undefined.
absl::StatusOr<Value> GetItem(Heap* heap, const Value& object, const Value& key);

// object[start:stop:step] of text, list, tuple or range; None stands for a bound left out.
struct SliceBounds {
  Value start = None{};
  Value stop = None{};
  Value step = None{};
};
absl::StatusOr<Value> GetSlice(Heap* heap, const Value& object, const SliceBounds& bounds);

// Which items of a sequence of `length` a slice takes: `count` of them from `start` on, in front of
// `stop`.
struct SliceIndices {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t count;
};
absl::StatusOr<SliceIndices> ResolveSlice(const SliceBounds& bounds, int64_t length);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_ACCESS_H_
