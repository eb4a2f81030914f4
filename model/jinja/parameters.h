// How the arguments of a call find the parameters of a function that is written in C++.
#ifndef TLM_MODEL_JINJA_PARAMETERS_H_
#define TLM_MODEL_JINJA_PARAMETERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

inline constexpr size_t kMaxParameters = 5;

struct Parameters {
  size_t required = 0;
  std::array<std::string_view, kMaxParameters> names = {};  // empty behind the last
  bool by_name = true;                                      // whether name=value is accepted
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

 private:
  std::array<std::optional<Value>, kMaxParameters> values_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_PARAMETERS_H_
