#include "model/jinja/heap.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm::jinja {
namespace {

absl::StatusOr<int> CheckedDepth(int of_items) {
  if (of_items >= kMaxValueDepth) {
    return ResourceExhausted("values nest deeper than the limit of {} levels", kMaxValueDepth);
  }
  return of_items + 1;
}

int DeepestOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, DepthOf(item));
  return deepest;
}

}  // namespace

absl::Status Heap::Step(int64_t steps) {
  steps_ += steps;
  if (steps_ <= kMaxSteps) return absl::OkStatus();
  return ResourceExhausted("the template takes more than the limit of {} steps", kMaxSteps);
}

absl::Status Heap::WorkOn(const Arguments& arguments) {
  size_t bytes = 0;
  for (const Value& value : arguments.positional) {
    if (const auto* text = std::get_if<TextPtr>(&value)) bytes += (*text)->bytes.size();
  }
  for (const auto& [name, value] : arguments.named) {
    if (const auto* text = std::get_if<TextPtr>(&value)) bytes += (*text)->bytes.size();
  }
  return Work(bytes);
}

absl::Status Heap::CheckRoom(size_t bytes) const {
  if (held_bytes_ <= kMaxMemoryBytes && bytes <= kMaxMemoryBytes - held_bytes_) {
    return absl::OkStatus();
  }
  return ResourceExhausted("the template's values take more than the limit of {} bytes",
                           kMaxMemoryBytes);
}

absl::Status Heap::CheckRoomFor(int64_t count, size_t size) const {
  if (count <= 0 || size == 0) return absl::OkStatus();
  constexpr size_t kTooMuch = std::numeric_limits<size_t>::max();
  const auto times = static_cast<size_t>(count);
  return CheckRoom(times > kTooMuch / size ? kTooMuch : times * size);
}

absl::StatusOr<Value> Heap::MakeText(std::string text, bool markup) {
  TLM_RETURN_IF_ERROR(CheckRoom(sizeof(Text) + text.size()));
  TLM_RETURN_IF_ERROR(Work(text.size()));
  return std::make_shared<const Text>(std::move(text), markup, this);
}

absl::StatusOr<Value> Heap::MakeList(std::vector<Value> items) {
  TLM_ASSIGN_OR_RETURN(const int depth, CheckedDepth(DeepestOf(items)));
  const size_t bytes = items.size() * sizeof(Value);
  TLM_RETURN_IF_ERROR(Work(bytes));
  return Own(std::make_unique<List>(std::move(items), depth), bytes);
}

absl::StatusOr<Value> Heap::MakeTuple(std::vector<Value> items) {
  TLM_ASSIGN_OR_RETURN(const int depth, CheckedDepth(DeepestOf(items)));
  const size_t bytes = items.size() * sizeof(Value);
  TLM_RETURN_IF_ERROR(Work(bytes));
  return Own(std::make_unique<Tuple>(std::move(items), depth), bytes);
}

absl::StatusOr<Value> Heap::MakeDict(Dict::Members members) {
  int deepest = 0;
  for (const auto& [key, value] : members) {
    deepest = std::max({deepest, DepthOf(key), DepthOf(value)});
  }
  TLM_ASSIGN_OR_RETURN(const int depth, CheckedDepth(deepest));
  const size_t bytes = members.size() * sizeof(members[0]);
  TLM_RETURN_IF_ERROR(Work(bytes));
  return Own(std::make_unique<Dict>(std::move(members), depth), bytes);
}

absl::StatusOr<Value> Heap::MakeGenerator(std::unique_ptr<Iterator> items, const Value& source) {
  TLM_ASSIGN_OR_RETURN(const int depth, CheckedDepth(DepthOf(source)));
  return Own(std::make_unique<Generator>(std::move(items), depth));
}

Value Heap::MakeUndefined(std::string why) {
  return Undefined{std::make_shared<const Text>(std::move(why), false, this)};
}

absl::Status StackLevel::status() const {
  if (heap_->depth_ <= kMaxEvaluationDepth) return absl::OkStatus();
  return ResourceExhausted("evaluations nest deeper than the limit of {} levels",
                           kMaxEvaluationDepth);
}

}  // namespace tlm::jinja
