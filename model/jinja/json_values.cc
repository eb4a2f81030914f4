#include "model/jinja/json_values.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

absl::StatusOr<Value> FromArray(Heap* heap, const nlohmann::json& json) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(json.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(json.size());
  for (const nlohmann::json& element : json) {
    TLM_ASSIGN_OR_RETURN(Value item, FromJson(heap, element));
    items.push_back(std::move(item));
  }
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> FromObject(Heap* heap, const nlohmann::json& json) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(json.size() * 2 * sizeof(Value)));
  Dict::Members members;
  members.reserve(json.size());
  for (const auto& [name, element] : json.items()) {
    TLM_ASSIGN_OR_RETURN(Value key, CheckedText(heap, name));
    TLM_ASSIGN_OR_RETURN(Value value, FromJson(heap, element));
    members.emplace_back(std::move(key), std::move(value));
  }
  return heap->MakeDict(std::move(members));
}

}  // namespace

absl::StatusOr<Value> FromJson(Heap* heap, const nlohmann::json& json) {
  StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.status());
  switch (json.type()) {
    case nlohmann::json::value_t::null:
      return None{};
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      if (value > kMax) return InvalidArgument("integer {}, the limit is {}", value, kMax);
      return static_cast<int64_t>(value);
    }
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return CheckedText(heap, json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array:
      return FromArray(heap, json);
    case nlohmann::json::value_t::object:
      return FromObject(heap, json);
    default:
      return InvalidArgument("a JSON value of no type");
  }
}

absl::StatusOr<Value> CheckedText(Heap* heap, const std::string& text) {
  if (!IsValidUtf8(text)) return InvalidArgument("a text is not valid UTF-8");
  return heap->MakeText(text);
}

}  // namespace tlm::jinja
