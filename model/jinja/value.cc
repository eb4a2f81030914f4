#include "model/jinja/value.h"

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

constexpr std::string_view kTypeNames[] = {"Undefined", "NoneType",  "bool",    "int",
                                           "float",     "str",       "list",    "dict",
                                           "Namespace", "generator", "context", "function"};
static_assert(std::size(kTypeNames) == std::variant_size_v<Value>);

struct Truth {
  bool operator()(const Undefined&) const { return false; }
  bool operator()(None) const { return false; }
  bool operator()(bool value) const { return value; }
  bool operator()(int64_t value) const { return value != 0; }
  bool operator()(double value) const { return value != 0; }
  bool operator()(const TextPtr& text) const { return !text->bytes.empty(); }
  bool operator()(const Sequence* sequence) const { return !sequence->items.empty(); }
  bool operator()(const Dict* dict) const { return !dict->members.empty(); }
  bool operator()(const Object*) const { return true; }
};

}  // namespace

Text::Text(std::string text, bool is_markup, size_t* held)
    : bytes(std::move(text)), length(CountCodePoints(bytes)), markup(is_markup), held_bytes(held) {
  if (held_bytes != nullptr) *held_bytes += sizeof(Text) + bytes.size();
}

Text::~Text() {
  if (held_bytes != nullptr) *held_bytes -= sizeof(Text) + bytes.size();
}

std::string_view TypeName(const Value& value) {
  const Sequence* const sequence = AsSequence(value);
  return sequence != nullptr && sequence->is_tuple ? "tuple" : kTypeNames[value.index()];
}

const Sequence* AsSequence(const Value& value) {
  const auto* const sequence = std::get_if<const Sequence*>(&value);
  return sequence == nullptr ? nullptr : *sequence;
}

int DepthOf(const Value& value) {
  if (const Sequence* const sequence = AsSequence(value)) return sequence->depth;
  if (const auto* dict = std::get_if<const Dict*>(&value)) return (*dict)->depth;
  if (const auto* generator = std::get_if<Generator*>(&value)) return (*generator)->items->depth;
  return 0;
}

bool IsTruthy(const Value& value) { return std::visit(Truth{}, value); }

int64_t LengthOf(const Value& value) {
  const auto size = [](size_t count) { return static_cast<int64_t>(count); };
  if (const Sequence* const sequence = AsSequence(value)) return size(sequence->items.size());
  if (const auto* text = std::get_if<TextPtr>(&value)) return size((*text)->length);
  if (const auto* dict = std::get_if<const Dict*>(&value)) return size((*dict)->members.size());
  return Is<Undefined>(value) ? 0 : -1;
}

bool IsIterable(const Value& value) { return LengthOf(value) >= 0 || Is<Generator*>(value); }

absl::Status CheckDefined(const Value& value) {
  const auto* const undefined = std::get_if<Undefined>(&value);
  if (undefined == nullptr) return absl::OkStatus();
  return InvalidArgument("{}", undefined->why->bytes);
}

}  // namespace tlm::jinja
