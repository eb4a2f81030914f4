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
// Whether Python's str, list, tuple or dict has an unsupported method of that name.
bool IsUnsupportedMethod(std::string_view name);

// value|name(arguments). INVALID_ARGUMENT where Python raises and for names that are none.
absl::StatusOr<Value> ApplyFilter(Heap* heap, std::string_view name, const Value& value,
                                  Arguments arguments);
// value is name(arguments).
absl::StatusOr<bool> ApplyTest(Heap* heap, std::string_view name, const Value& value,
                               Arguments arguments);

// `object`'s method as a value that can be called; nullopt where it has none of that name. Python's
// internals and the methods that change a list or a dict are undefined, as in Jinja's immutable
// sandbox.
absl::StatusOr<std::optional<Value>> BindMethod(Heap* heap, const Value& object,
                                                std::string_view name);

// A function that is written in C++: its parameters, and how the arguments of a call find them.

inline constexpr size_t kMaxParameters = 4;

struct Parameters {
  size_t required = 0;
  std::array<std::string_view, kMaxParameters> names = {};  // empty behind the last
  bool by_name = true;                                      // whether name=value is accepted
  bool variadic = false;                                    // takes whatever there is
};

inline constexpr Parameters kNoParameters;

// The arguments in the order of the parameters. The readers return INVALID_ARGUMENT for a value of
// another type than they read.
class BoundArguments {
 public:
  // INVALID_ARGUMENT, naming `function`, for too many, unknown, repeated or missing arguments.
  static absl::StatusOr<BoundArguments> Bind(std::string_view function,
                                             const Parameters& parameters, Arguments arguments);

  // Null where the call does not give parameter `i`.
  const Value* Get(size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  // As Get, but None counts as not given.
  const Value* GetUnlessNone(size_t i) const;

  absl::StatusOr<int64_t> Integer(size_t i, int64_t otherwise) const;
  bool Truth(size_t i, bool otherwise) const;
  // A str; null where it is not given or None.
  absl::StatusOr<TextPtr> MaybeText(size_t i) const;
  // Of a required parameter.
  absl::StatusOr<TextPtr> RequiredText(size_t i) const;

  // All of them, where the parameters are variadic.
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

// The tables of filters and methods, by what they work on.
std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> TextMethods();
std::span<const Builtin> DictMethods();

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_BUILTINS_H_
