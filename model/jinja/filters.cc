#include "model/jinja/filters.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm::jinja {
namespace {

template <typename Entry>
const Entry* FindEntry(std::span<const Entry> entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

const Filter* FindFilter(std::string_view name) {
  for (const auto filters : {TextFilters(), NumberFilters(), SequenceFilters()}) {
    if (const Filter* const filter = FindEntry(filters, name)) return filter;
  }
  return nullptr;
}

}  // namespace

bool IsFilter(std::string_view name) {
  return FindFilter(name) != nullptr || FindEntry(SelectionFilters(), name) != nullptr;
}

absl::StatusOr<Value> ApplyFilter(Heap* heap, std::string_view name, const Value& value,
                                  Arguments arguments) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.status());
  TLM_RETURN_IF_ERROR(heap->Step());
  if (const auto* text = std::get_if<TextPtr>(&value)) {
    TLM_RETURN_IF_ERROR(heap->Work((*text)->bytes.size()));
  }
  TLM_RETURN_IF_ERROR(heap->WorkOn(arguments));
  if (const Filter* const filter = FindFilter(name)) {
    TLM_ASSIGN_OR_RETURN(const BoundArguments bound,
                         BoundArguments::Bind(name, filter->parameters, std::move(arguments)));
    return filter->function(heap, value, bound);
  }
  if (const VariadicFilter* const filter = FindEntry(SelectionFilters(), name)) {
    return filter->function(heap, value, std::move(arguments));
  }
  return InvalidArgument("No filter named {}.", Quoted(name));
}

}  // namespace tlm::jinja
