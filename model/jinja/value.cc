#include "model/jinja/value.h"

#include "model/jinja/heap.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

constexpr std::string_view kTypeNames[] = {
    "Undefined", "NoneType",   "bool",  "int",       "float",     "str",     "list",    "tuple",
    "dict",      "dict_items", "range", "Namespace", "generator", "context", "function"};
static_assert(std::size(kTypeNames) == std::variant_size_v<Value>);

struct Truth {
  bool operator()(const Undefined&) const { return false; }
  bool operator()(None) const { return false; }
  bool operator()(bool value) const { return value; }
  bool operator()(int64_t value) const { return value != 0; }
  bool operator()(double value) const { return value != 0; }
  bool operator()(const TextPtr& text) const { return !text->bytes.empty(); }
  bool operator()(const List* list) const { return !list->items.empty(); }
  bool operator()(const Tuple* tuple) const { return !tuple->items.empty(); }
  bool operator()(const Dict* dict) const { return !dict->members.empty(); }
  bool operator()(const DictView& view) const { return !view.dict->members.empty(); }
  bool operator()(const Range* range) const { return range->size > 0; }
  bool operator()(const Object*) const { return true; }
};

}  // namespace

Text::Text(std::string text, bool is_markup, Heap* owner)
    : bytes(std::move(text)), length(CountCodePoints(bytes)), markup(is_markup), heap(owner) {
  if (heap != nullptr) heap->Hold(sizeof(Text) + bytes.size());
}

Text::~Text() {
  if (heap != nullptr) heap->Release(sizeof(Text) + bytes.size());
}

std::string_view TypeName(const Value& value) { return kTypeNames[value.index()]; }

const Sequence* AsSequence(const Value& value) {
  if (const auto* list = std::get_if<const List*>(&value)) return *list;
  if (const auto* tuple = std::get_if<const Tuple*>(&value)) return *tuple;
  return nullptr;
}

int DepthOf(const Value& value) {
  if (const Sequence* const sequence = AsSequence(value)) return sequence->depth;
  if (const auto* dict = std::get_if<const Dict*>(&value)) return (*dict)->depth;
  if (const auto* view = std::get_if<DictView>(&value)) return view->dict->depth;
  if (const auto* generator = std::get_if<Generator*>(&value)) return (*generator)->depth;
  return 0;
}

bool IsTruthy(const Value& value) { return std::visit(Truth{}, value); }

}  // namespace tlm::jinja
