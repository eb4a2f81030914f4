// The values of a template: Python's values as seen from Jinja.
//
// Containers belong to the Heap of one rendering and are referred to by plain pointers, so values
// may refer to each other in circles and are still freed together when the rendering ends. Only
// text is counted by reference, since templates make many short-lived texts.
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
  // Adds its size to `*held`, unless null, while it lives.
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

// The base of objects that a Heap owns.
struct Object {
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
};

struct None {
  bool operator==(const None&) const = default;
};
// A missing name or member. Prints as nothing; most operations on it fail with `why`.
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

// A list or a tuple. `depth` is 1 + the depth of the deepest item; kMaxValueDepth bounds it.
struct Sequence final : Object {
  Sequence(std::vector<Value> values, bool tuple, int levels)
      : items(std::move(values)), is_tuple(tuple), depth(levels) {}
  const std::vector<Value> items;
  const bool is_tuple;
  const int depth;
};

// A dict in the order of insertion; keys are hashable and distinct.
struct Dict final : Object {
  using Members = std::vector<std::pair<Value, Value>>;
  Dict(Members values, int levels) : members(std::move(values)), depth(levels) {}
  const Members members;
  const int depth;
};

// Apart from generators the only value that changes.
struct Namespace final : Object {
  std::vector<std::pair<std::string, Value>> attributes;
};

// The result of map, select, items and the like: it has no length, counts as true, and reading uses
// it up. Unlike Python's generators it has all of its items from the start.
struct Generator final : Object {
  explicit Generator(const Sequence* all) : items(all) {}
  const Sequence* const items;
  size_t next = 0;
};

// An object with named parts and nothing else, such as `loop`.
class Attributes : public Object {
 public:
  // Returns Undefined with a null `why` for an unknown part.
  virtual absl::StatusOr<Value> Get(std::string_view name) = 0;
};

// The content of a call's parentheses.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A macro, a global function or the method of a value.
class Callable : public Object {
 public:
  virtual absl::StatusOr<Value> Call(Arguments arguments) const = 0;
};

// Returns Python's name of the type for messages: "str", "int", "dict".
std::string_view TypeName(const Value& value);

// Returns null unless `value` is a list or a tuple.
const Sequence* AsSequence(const Value& value);

int DepthOf(const Value& value);

// Evaluates Python's bool(value).
bool IsTruthy(const Value& value);

// Returns len(value), or -1 for values without a length, such as a number or a generator.
int64_t LengthOf(const Value& value);

bool IsIterable(const Value& value);

// INVALID_ARGUMENT, with its `why`, when `value` is undefined.
absl::Status CheckDefined(const Value& value);

// Makes a text that belongs to no rendering, such as a literal of the template.
inline Value MakeConstantText(std::string text) {
  return std::make_shared<const Text>(std::move(text), false, nullptr);
}

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_VALUE_H_
