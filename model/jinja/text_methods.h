// The methods of Python's str.
#ifndef TLM_MODEL_JINJA_TEXT_METHODS_H_
#define TLM_MODEL_JINJA_TEXT_METHODS_H_

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/parameters.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

struct TextMethod {
  std::string_view name;
  Parameters parameters;
  absl::StatusOr<Value> (*function)(Heap* heap, const TextPtr& self, const BoundArguments& args);
};

// strip, upper, isdigit, zfill ...: from one text to another, and questions about its characters.
std::span<const TextMethod> TextTransformMethods();

// find, split, replace, join ...: a text and others in it.
std::span<const TextMethod> TextSearchMethods();

// str.strip(chars): without leading and trailing characters of the set; of white space when null.
enum class StripSide { kLeft, kRight, kBoth };
absl::StatusOr<Value> StripText(Heap* heap, const Text& text, const Text* chars, StripSide side);

// str.splitlines(): without line ends unless `keep_ends`.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// str.replace(old, replacement, count); a negative count means all.
absl::StatusOr<Value> ReplaceText(Heap* heap, const Text& text, std::string_view old,
                                  std::string_view replacement, int64_t count);

// str.join: `items` that are not text are converted when `converts`, refused otherwise.
absl::StatusOr<Value> JoinTexts(Heap* heap, std::string_view separator,
                                const std::vector<Value>& items, bool converts);

// str.center(width, fill).
absl::StatusOr<Value> CenterText(Heap* heap, const Text& text, int64_t width, char32_t fill);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_TEXT_METHODS_H_
