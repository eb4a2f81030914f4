// Going through what Python can iterate over.
#ifndef TLM_MODEL_JINJA_ITERATION_H_
#define TLM_MODEL_JINJA_ITERATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

bool IsIterable(const Value& value);

// iter(value). INVALID_ARGUMENT when `value` is not iterable. What is undefined is empty.
absl::StatusOr<std::unique_ptr<Iterator>> Iterate(Heap* heap, const Value& value);

// list(value).
absl::StatusOr<std::vector<Value>> Collect(Heap* heap, const Value& value);

// All that `items` still hands out.
absl::StatusOr<std::vector<Value>> Drain(Heap* heap, Iterator* items);

// len(value); nullopt for what has none, such as a number or a generator.
std::optional<int64_t> Length(const Value& value);

// reversed(value) as a list. INVALID_ARGUMENT for what Python cannot go through backwards.
absl::StatusOr<std::vector<Value>> CollectReversed(Heap* heap, const Value& value);

// Hands out what a list holds.
std::unique_ptr<Iterator> IterateOver(std::vector<Value> items);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_ITERATION_H_
