#include "model/jinja/iteration.h"

#include <algorithm>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

class VectorIterator final : public Iterator {
 public:
  explicit VectorIterator(std::vector<Value> items) : items_(std::move(items)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    if (next_ == items_.size()) return false;
    *item = items_[next_++];
    return true;
  }

 private:
  const std::vector<Value> items_;
  size_t next_ = 0;
};

class SequenceIterator final : public Iterator {
 public:
  explicit SequenceIterator(const Sequence* sequence) : sequence_(sequence) {}
  absl::StatusOr<bool> Next(Value* item) override {
    if (next_ == sequence_->items.size()) return false;
    *item = sequence_->items[next_++];
    return true;
  }

 private:
  const Sequence* const sequence_;
  size_t next_ = 0;
};

class TextIterator final : public Iterator {
 public:
  TextIterator(Heap* heap, TextPtr text) : heap_(heap), text_(std::move(text)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    if (next_ == text_->bytes.size()) return false;
    const size_t start = next_;
    NextCodePoint(text_->bytes, &next_);
    TLM_ASSIGN_OR_RETURN(*item, heap_->MakeText(text_->bytes.substr(start, next_ - start)));
    return true;
  }

 private:
  Heap* const heap_;
  const TextPtr text_;
  size_t next_ = 0;
};

class ViewIterator final : public Iterator {
 public:
  ViewIterator(Heap* heap, DictView view) : heap_(heap), view_(view) {}
  absl::StatusOr<bool> Next(Value* item) override {
    if (next_ == view_.dict->members.size()) return false;
    const auto& [key, value] = view_.dict->members[next_++];
    if (view_.part == DictView::Part::kKeys) {
      *item = key;
    } else if (view_.part == DictView::Part::kValues) {
      *item = value;
    } else {
      TLM_ASSIGN_OR_RETURN(*item, heap_->MakeTuple({key, value}));
    }
    return true;
  }

 private:
  Heap* const heap_;
  const DictView view_;
  size_t next_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(const Range* range) : range_(range) {}
  absl::StatusOr<bool> Next(Value* item) override {
    if (next_ == range_->size) return false;
    *item = range_->At(next_++);
    return true;
  }

 private:
  const Range* const range_;
  int64_t next_ = 0;
};

// Reads the items of a generator, which may be shared with others that do.
class GeneratorIterator final : public Iterator {
 public:
  GeneratorIterator(Heap* heap, Generator* generator) : heap_(heap), generator_(generator) {}
  absl::StatusOr<bool> Next(Value* item) override {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.status());
    TLM_RETURN_IF_ERROR(heap_->Step());
    if (generator_->running) return InvalidArgument("generator already executing");
    generator_->running = true;
    absl::StatusOr<bool> more = generator_->items->Next(item);
    generator_->running = false;
    return more;
  }

 private:
  Heap* const heap_;
  Generator* const generator_;
};

class EmptyIterator final : public Iterator {
 public:
  absl::StatusOr<bool> Next(Value*) override { return false; }
};

std::unique_ptr<Iterator> IterateOrNull(Heap* heap, const Value& value) {
  if (const Sequence* const sequence = AsSequence(value)) {
    return std::make_unique<SequenceIterator>(sequence);
  }
  if (const auto* text = std::get_if<TextPtr>(&value)) {
    return std::make_unique<TextIterator>(heap, *text);
  }
  if (const auto* dict = std::get_if<const Dict*>(&value)) {
    return std::make_unique<ViewIterator>(heap, DictView{*dict, DictView::Part::kKeys});
  }
  if (const auto* view = std::get_if<DictView>(&value)) {
    return std::make_unique<ViewIterator>(heap, *view);
  }
  if (const auto* range = std::get_if<const Range*>(&value)) {
    return std::make_unique<RangeIterator>(*range);
  }
  if (const auto* generator = std::get_if<Generator*>(&value)) {
    return std::make_unique<GeneratorIterator>(heap, *generator);
  }
  if (Is<Undefined>(value)) return std::make_unique<EmptyIterator>();
  return nullptr;
}

}  // namespace

bool IsIterable(const Value& value) { return IterateOrNull(nullptr, value) != nullptr; }

absl::StatusOr<std::unique_ptr<Iterator>> Iterate(Heap* heap, const Value& value) {
  std::unique_ptr<Iterator> items = IterateOrNull(heap, value);
  if (items == nullptr) {
    return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
  return items;
}

absl::StatusOr<std::vector<Value>> Drain(Heap* heap, Iterator* items) {
  std::vector<Value> result;
  for (;;) {
    Value item;
    TLM_ASSIGN_OR_RETURN(const bool more, items->Next(&item));
    if (!more) return result;
    TLM_RETURN_IF_ERROR(heap->Step());
    TLM_RETURN_IF_ERROR(heap->CheckRoom(2 * result.size() * sizeof(Value)));
    result.push_back(std::move(item));
  }
}

absl::StatusOr<std::vector<Value>> Collect(Heap* heap, const Value& value) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Iterator> items, Iterate(heap, value));
  return Drain(heap, items.get());
}

std::optional<int64_t> Length(const Value& value) {
  const auto size = [](size_t count) { return static_cast<int64_t>(count); };
  if (const Sequence* const sequence = AsSequence(value)) return size(sequence->items.size());
  if (const auto* text = std::get_if<TextPtr>(&value)) return size((*text)->length);
  if (const auto* dict = std::get_if<const Dict*>(&value)) return size((*dict)->members.size());
  if (const auto* view = std::get_if<DictView>(&value)) return size(view->dict->members.size());
  if (const auto* range = std::get_if<const Range*>(&value)) return (*range)->size;
  if (Is<Undefined>(value)) return 0;
  return std::nullopt;
}

absl::StatusOr<std::vector<Value>> CollectReversed(Heap* heap, const Value& value) {
  if (!Length(value).has_value()) {
    return InvalidArgument("'{}' object is not reversible", TypeName(value));
  }
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(heap, value));
  std::reverse(items.begin(), items.end());
  return items;
}

std::unique_ptr<Iterator> IterateOver(std::vector<Value> items) {
  return std::make_unique<VectorIterator>(std::move(items));
}

}  // namespace tlm::jinja
