// Jinja's filters and tests, and the methods of Python's values, that published chat templates use,
// and similar ones. README.md counts the uses.
#ifndef TLM_MODEL_JINJA_BUILTINS_H_
#define TLM_MODEL_JINJA_BUILTINS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

bool IsAmong(std::span<const std::string_view> names, std::string_view name);
bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);
// True if Python's str, list, tuple or dict has an unsupported method of that name.
bool IsUnsupportedMethod(std::string_view name);

// Evaluates value|name(arguments). INVALID_ARGUMENT where Python raises and for unknown names.
absl::StatusOr<Value> ApplyFilter(Heap* heap, std::string_view name, const Value& value,
                                  Arguments arguments);
// Evaluates `value is name(arguments)`.
absl::StatusOr<bool> ApplyTest(Heap* heap, std::string_view name, const Value& value,
                               Arguments arguments);

// Returns `object`'s method as a value that can be called; nullopt where it has no method of that
// name. Python's internals and the methods that change a list or a dict are undefined, as in
// Jinja's immutable sandbox.
absl::StatusOr<std::optional<Value>> BindMethod(Heap* heap, const Value& object,
                                                std::string_view name);

// The parameters of functions written in C++, and the assignment of a call's arguments to them.

inline constexpr size_t kMaxParameters = 4;

struct Parameters {
  size_t required = 0;
  std::array<std::string_view, kMaxParameters> names = {};  // empty after the last
  bool by_name = true;                                      // whether name=value is accepted
  bool variadic = false;                                    // takes any number of arguments
};

inline constexpr Parameters kNoParameters;

// The arguments in the order of the parameters. The readers return INVALID_ARGUMENT for a value of
// a wrong type.
class BoundArguments {
 public:
  // INVALID_ARGUMENT, naming `function`, for too many, unknown, repeated or missing arguments.
  static absl::StatusOr<BoundArguments> Bind(std::string_view function,
                                             const Parameters& parameters, Arguments arguments);

  // Returns null where the call does not give parameter `i`.
  const Value* Get(size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  // Like Get, but None counts as not given.
  const Value* GetUnlessNone(size_t i) const;

  absl::StatusOr<int64_t> Integer(size_t i, int64_t otherwise) const;
  bool Truth(size_t i, bool otherwise) const;
  // Returns a str; null where it is not given or None.
  absl::StatusOr<TextPtr> MaybeText(size_t i) const;
  // Returns the str of a required parameter.
  absl::StatusOr<TextPtr> RequiredText(size_t i) const;

  // Returns all arguments, for variadic parameters.
  const Arguments& all() const { return all_; }

 private:
  std::array<std::optional<Value>, kMaxParameters> values_;
  Arguments all_;
};

// A filter, a test or a method. `self` is the value before its name.
struct Builtin {
  std::string_view name;
  Parameters parameters;
  absl::StatusOr<Value> (*function)(Heap* heap, const Value& self, const BoundArguments& args);

  absl::StatusOr<Value> Call(Heap* heap, const Value& self, Arguments arguments) const;
};

// The tables of filters and methods by the type of their operand.
std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> TextMethods();
std::span<const Builtin> DictMethods();

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_BUILTINS_H_
