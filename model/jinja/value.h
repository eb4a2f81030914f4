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

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm::jinja {

// Immutable valid UTF-8.
struct Text {
  // Adds its size to `*held`, where given, for as long as it lives.
  Text(std::string text, bool is_markup, size_t* held);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const std::string bytes;
  const size_t length;  // in code points
  const bool markup;    // made by `safe`: text added to it is escaped
  size_t* const held_bytes;
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

struct Sequence;
struct Dict;
struct Namespace;
struct Generator;
class Attributes;
class Callable;

using Value = std::variant<Undefined, None, bool, int64_t, double, TextPtr, const Sequence*,
                           const Dict*, Namespace*, Generator*, Attributes*, const Callable*>;

template <typename T>
bool Is(const Value& value) {
  return std::holds_alternative<T>(value);
}

// A list or a tuple. `depth`: 1 + that of the deepest item; bounded by kMaxValueDepth.
struct Sequence final : Object {
  Sequence(std::vector<Value> values, bool tuple, int levels)
      : items(std::move(values)), is_tuple(tuple), depth(levels) {}
  const std::vector<Value> items;
  const bool is_tuple;
  const int depth;
};

// In the order of insertion; keys are hashable and differ.
struct Dict final : Object {
  using Members = std::vector<std::pair<Value, Value>>;
  Dict(Members values, int levels) : members(std::move(values)), depth(levels) {}
  const Members members;
  const int depth;
};

// Besides generators the only value that changes.
struct Namespace final : Object {
  std::vector<std::pair<std::string, Value>> attributes;
};

// What map, select, items and their like make: no length, true whatever it holds, used up by
// reading. Unlike Python's generators it has all of its items from the start.
struct Generator final : Object {
  explicit Generator(const Sequence* all) : items(all) {}
  const Sequence* const items;
  size_t next = 0;
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

// len(value); -1 for what has none, such as a number or a generator.
int64_t LengthOf(const Value& value);

bool IsIterable(const Value& value);

// INVALID_ARGUMENT, in the words of `value`, when it is undefined.
absl::Status CheckDefined(const Value& value);

// A text that belongs to no rendering, such as a literal of the template.
inline Value MakeConstantText(std::string text) {
  return std::make_shared<const Text>(std::move(text), false, nullptr);
}

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_VALUE_H_
