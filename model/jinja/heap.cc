#include "model/jinja/heap.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

absl::StatusOr<int> CheckedDepth(int of_items) {
  if (of_items >= kMaxValueDepth) {
    return ResourceExhausted("values nest deeper than the limit of {} levels", kMaxValueDepth);
  }
  return of_items + 1;
}

}  // namespace

absl::Status Heap::Step(int64_t steps) {
  steps_ += steps;
  if (steps_ <= max_steps_) return absl::OkStatus();
  return ResourceExhausted("the template takes more than the limit of {} steps", max_steps_);
}

absl::Status Heap::WorkOn(const Value& value) {
  const auto* const text = std::get_if<TextPtr>(&value);
  return text == nullptr ? absl::OkStatus() : Work((*text)->bytes.size());
}

absl::Status Heap::WorkOn(const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    if (absl::Status status = WorkOn(value); !status.ok()) return status;
  }
  for (const auto& [name, value] : arguments.named) {
    if (absl::Status status = WorkOn(value); !status.ok()) return status;
  }
  return absl::OkStatus();
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
  return std::make_shared<const Text>(std::move(text), markup, &held_bytes_);
}

absl::StatusOr<Value> Heap::MakeSequence(std::vector<Value> items, bool is_tuple) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, DepthOf(item));
  TLM_ASSIGN_OR_RETURN(const int depth, CheckedDepth(deepest));
  const size_t bytes = items.size() * sizeof(Value);
  TLM_RETURN_IF_ERROR(Work(bytes));
  return Own(std::make_unique<Sequence>(std::move(items), is_tuple, depth), bytes);
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

absl::StatusOr<Value> Heap::MakeGenerator(std::vector<Value> items) {
  TLM_ASSIGN_OR_RETURN(const Value list, MakeList(std::move(items)));
  return Own(std::make_unique<Generator>(AsSequence(list)));
}

Value Heap::MakeUndefined(std::string why) {
  return Undefined{std::make_shared<const Text>(std::move(why), false, &held_bytes_)};
}

absl::StatusOr<std::span<const Value>> Heap::Items(const Value& value) {
  if (const Sequence* const sequence = AsSequence(value)) return sequence->items;
  if (const auto* generator = std::get_if<Generator*>(&value)) {
    const std::span<const Value> all = (*generator)->items->items;
    return all.subspan(std::exchange((*generator)->next, all.size()));
  }
  if (!IsIterable(value)) {
    return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
  TLM_RETURN_IF_ERROR(CheckRoomFor(LengthOf(value), 2 * sizeof(Value)));
  std::vector<Value> items;
  if (const auto* dict = std::get_if<const Dict*>(&value)) {
    for (const auto& [key, member] : (*dict)->members) items.push_back(key);
  } else if (const auto* text = std::get_if<TextPtr>(&value)) {
    const std::string& bytes = (*text)->bytes;
    for (size_t next = 0; next < bytes.size();) {
      const size_t start = next;
      NextCodePoint(bytes, &next);
      TLM_RETURN_IF_ERROR(Step());
      TLM_ASSIGN_OR_RETURN(items.emplace_back(), MakeText(bytes.substr(start, next - start)));
    }
  }
  TLM_ASSIGN_OR_RETURN(const Value list, MakeList(std::move(items)));
  return AsSequence(list)->items;
}

absl::Status StackLevel::Enter() {
  if (heap_->depth_ <= kMaxEvaluationDepth) return heap_->Step();
  return ResourceExhausted("evaluations nest deeper than the limit of {} levels",
                           kMaxEvaluationDepth);
}

}  // namespace tlm::jinja
