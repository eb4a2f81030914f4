// The memory and the steps of one rendering.
#ifndef TLM_MODEL_JINJA_HEAP_H_
#define TLM_MODEL_JINJA_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/jinja/limits.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Makes values and counts the cost of values and of the work on them. The functions that return a
// status fail with RESOURCE_EXHAUSTED, naming the limit in limits.h that is reached. Use it from
// one thread.
class Heap {
 public:
  explicit Heap(int64_t max_steps = kMaxSteps) : max_steps_(max_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  absl::Status Step(int64_t steps = 1);
  // Counts work on `bytes` bytes, in addition to a step that is counted elsewhere.
  absl::Status Work(size_t bytes) { return Step(static_cast<int64_t>(bytes / kBytesPerStep)); }
  // Counts work on a value that is a text, and on the texts among the arguments of a call.
  absl::Status WorkOn(const Value& value);
  absl::Status WorkOn(const Arguments& arguments);
  // Checks, before values are made, that there is room for `bytes` bytes more.
  absl::Status CheckRoom(size_t bytes) const;
  // CheckRoom(count * size) without overflow. A negative count is 0.
  absl::Status CheckRoomFor(int64_t count, size_t size) const;

  absl::StatusOr<Value> MakeText(std::string text, bool markup = false);
  absl::StatusOr<Value> MakeList(std::vector<Value> items) {
    return MakeSequence(std::move(items), false);
  }
  absl::StatusOr<Value> MakeSequence(std::vector<Value> items, bool is_tuple);
  // The keys must be hashable and distinct.
  absl::StatusOr<Value> MakeDict(Dict::Members members);
  absl::StatusOr<Value> MakeGenerator(std::vector<Value> items);
  // Makes an undefined value; `why` explains it.
  Value MakeUndefined(std::string why);

  // Returns list(value), which lives as long as the heap. INVALID_ARGUMENT when `value` is not
  // iterable. An undefined value has no items; a generator is used up.
  absl::StatusOr<std::span<const Value>> Items(const Value& value);

  // Owns `object` until the heap is destroyed; `bytes` is its size apart from the object itself.
  template <typename T>
  absl::StatusOr<T*> Own(std::unique_ptr<T> object, size_t bytes = 0) {
    bytes += sizeof(T);
    if (absl::Status status = CheckRoom(bytes); !status.ok()) return status;
    held_bytes_ += bytes;
    T* const result = object.get();
    objects_.push_back(std::move(object));
    return result;
  }

 private:
  friend class StackLevel;

  const int64_t max_steps_;
  int64_t steps_ = 0;
  size_t held_bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;  // texts in them count down held_bytes_
};

// Counts one level of nested evaluation while it lives.
class StackLevel {
 public:
  explicit StackLevel(Heap* heap) : heap_(heap) { ++heap_->depth_; }
  ~StackLevel() { --heap_->depth_; }
  StackLevel(const StackLevel&) = delete;
  StackLevel& operator=(const StackLevel&) = delete;

  // RESOURCE_EXHAUSTED when there are too many levels; otherwise counts a step.
  absl::Status Enter();

 private:
  Heap* const heap_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_HEAP_H_
