// The values of a template: what Python's values look like from inside Jinja.
//
// Containers belong to the Heap of one rendering and are referred to by plain pointers, so values
// may refer to each other in circles and still are freed at once when the rendering ends. Only text
// is counted by reference, since templates make most of it in passing.
#ifndef TLM_MODEL_JINJA_VALUE_H_
#define TLM_MODEL_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm::jinja {

class Heap;

// Immutable valid UTF-8.
struct Text {
  // `heap`, when given, is told of the bytes and outlives the text.
  Text(std::string text, bool is_markup, Heap* heap);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  bool is_ascii() const { return length == bytes.size(); }

  const std::string bytes;
  const size_t length;  // in code points
  const bool markup;    // made by `safe` or `escape`: text added to it is escaped
  Heap* const heap;
};
using TextPtr = std::shared_ptr<const Text>;

// What a Heap owns.
struct Object {
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
};

struct None {
  bool operator==(const None&) const = default;
};
// A name or member that is not there. Prints as nothing; most operations on it fail with `why`.
struct Undefined {
  TextPtr why;
};

struct List;
struct Tuple;
struct Dict;
struct Range;
struct Namespace;
struct Generator;
class Attributes;
class Callable;

// dict.keys(), .values() or .items().
struct DictView {
  enum class Part { kKeys, kValues, kItems };
  const Dict* dict;
  Part part;
};

using Value = std::variant<Undefined, None, bool, int64_t, double, TextPtr, const List*,
                           const Tuple*, const Dict*, DictView, const Range*, Namespace*,
                           Generator*, Attributes*, const Callable*>;

template <typename T>
bool Is(const Value& value) {
  return std::holds_alternative<T>(value);
}

// `depth`: 1 + that of the deepest item; bounded by kMaxValueDepth.
struct Sequence : Object {
  Sequence(std::vector<Value> values, int levels) : items(std::move(values)), depth(levels) {}
  const std::vector<Value> items;
  const int depth;
};
struct List final : Sequence {
  using Sequence::Sequence;
};
struct Tuple final : Sequence {
  using Sequence::Sequence;
};

// In the order of insertion; keys are hashable and differ.
struct Dict final : Object {
  using Members = std::vector<std::pair<Value, Value>>;
  Dict(Members values, int levels) : members(std::move(values)), depth(levels) {}
  const Members members;
  const int depth;
};

struct Range final : Object {
  Range(int64_t first, int64_t end, int64_t step_width, int64_t count)
      : start(first), stop(end), step(step_width), size(count) {}
  int64_t At(int64_t index) const { return start + index * step; }
  const int64_t start;
  const int64_t stop;
  const int64_t step;
  const int64_t size;  // at most kMaxRangeItems
};

// The only value that changes.
struct Namespace final : Object {
  std::vector<std::pair<std::string, Value>> attributes;
};

// Hands out items one by one. The values it reads belong to the same Heap.
class Iterator {
 public:
  virtual ~Iterator() = default;
  // False when there is no further item.
  virtual absl::StatusOr<bool> Next(Value* item) = 0;
};

// Python's generators and iterators: no length, true whatever they hold, used up by reading.
struct Generator final : Object {
  Generator(std::unique_ptr<Iterator> source, int levels)
      : items(std::move(source)), depth(levels) {}
  const std::unique_ptr<Iterator> items;
  const int depth;
  bool running = false;
};

// An object with named parts and nothing else, such as `loop`.
class Attributes : public Object {
 public:
  // Undefined, its `why` null, for a part it does not have.
  virtual absl::StatusOr<Value> Get(std::string_view name) = 0;
};

// What stands in the parentheses of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A macro, a global function or the method of a value.
class Callable : public Object {
 public:
  virtual absl::StatusOr<Value> Call(Arguments arguments) const = 0;
};

// "str", "int", "dict": Python's name of the type, for messages.
std::string_view TypeName(const Value& value);

// Null unless `value` is a list or a tuple.
const Sequence* AsSequence(const Value& value);

int DepthOf(const Value& value);

// Python's bool(value).
bool IsTruthy(const Value& value);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_VALUE_H_
