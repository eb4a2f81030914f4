#include "model/jinja/loop.h"

#include <utility>

#include "model/base/errors.h"
#include "model/jinja/comparison.h"
#include "model/jinja/iteration.h"

namespace tlm::jinja {

// loop.cycle and loop.changed as values that can be called.
class LoopFunction final : public Callable {
 public:
  LoopFunction(Loop* loop, bool cycles) : loop_(loop), cycles_(cycles) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    if (!arguments.named.empty()) {
      return InvalidArgument("loop.{}() takes no keyword arguments", cycles_ ? "cycle" : "changed");
    }
    return cycles_ ? loop_->Cycle(std::move(arguments)) : loop_->Changed(std::move(arguments));
  }

 private:
  Loop* const loop_;
  const bool cycles_;
};

Loop::Loop(Heap* heap, std::unique_ptr<Iterator> items, std::optional<int64_t> length)
    : heap_(heap), items_(std::move(items)), length_(length) {}

absl::StatusOr<bool> Loop::Advance(Value* item) {
  TLM_ASSIGN_OR_RETURN(const Value* const next, Peek());
  if (next == nullptr) return false;
  *item = *next;
  ahead_.pop_front();
  ++index0_;
  previous_ = std::exchange(current_, *item);
  return true;
}

absl::StatusOr<const Value*> Loop::Peek() {
  if (ahead_.empty()) {
    Value item;
    TLM_ASSIGN_OR_RETURN(const bool more, items_->Next(&item));
    if (!more) return nullptr;
    ahead_.push_back(std::move(item));
  }
  return &ahead_.front();
}

absl::StatusOr<int64_t> Loop::Length() {
  if (!length_) {
    TLM_ASSIGN_OR_RETURN(std::vector<Value> rest, Drain(heap_, items_.get()));
    ahead_.insert(ahead_.end(), rest.begin(), rest.end());
    length_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
  }
  return *length_;
}

absl::StatusOr<Value> Loop::Get(std::string_view name) {
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") {
    return index0_ == 0 ? heap_->MakeUndefined("there is no previous item") : previous_;
  }
  if (name == "last" || name == "nextitem") {
    TLM_ASSIGN_OR_RETURN(const Value* const next, Peek());
    if (name == "last") return next == nullptr;
    return next == nullptr ? heap_->MakeUndefined("there is no next item") : *next;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    TLM_ASSIGN_OR_RETURN(const int64_t length, Length());
    return length - (name == "length" ? 0 : name == "revindex" ? index0_ : index0_ + 1);
  }
  if (name == "cycle" || name == "changed") {
    TLM_ASSIGN_OR_RETURN(const Callable* const function,
                         heap_->Own(std::make_unique<LoopFunction>(this, name == "cycle")));
    return function;
  }
  return Undefined{};
}

absl::StatusOr<Value> Loop::Cycle(Arguments arguments) const {
  if (arguments.positional.empty()) return InvalidArgument("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

absl::StatusOr<Value> Loop::Changed(Arguments arguments) {
  TLM_ASSIGN_OR_RETURN(const Value values, heap_->MakeTuple(std::move(arguments.positional)));
  bool same = false;
  if (last_changed_) {
    TLM_ASSIGN_OR_RETURN(same, IsEqual(heap_, *last_changed_, values));
  }
  last_changed_ = values;
  return !same;
}

}  // namespace tlm::jinja
