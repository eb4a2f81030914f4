#include "model/base/json_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

using nlohmann::json;

std::optional<int64_t> AsInteger(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

// What stands in the file, for messages; a container by its kind alone.
std::string Describe(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace

JsonFields::JsonFields(const json& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {}

const json* JsonFields::Find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::IsNull(const std::string& key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

bool JsonFields::IsObject(const std::string& key) const {
  const json* const value = Find(key);
  return value != nullptr && value->is_object();
}

std::vector<std::string> JsonFields::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) keys.push_back(key);
  return keys;
}

absl::Status JsonFields::WrongType(const std::string& key, const json& value,
                                   const char* wanted) const {
  return InvalidArgument("{}{} is {}, it must be {}", prefix_, key, Describe(value), wanted);
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(const std::string& key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return WrongType(key, *value, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(const std::string& key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return WrongType(key, *value, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<std::optional<double>> JsonFields::Number(const std::string& key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return WrongType(key, *value, "a finite number");
  }
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Integer(const std::string& key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> integer = AsInteger(*value);
  if (!integer.has_value()) return WrongType(key, *value, "an integer of 64 bits");
  return integer;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> JsonFields::Integers(const std::string& key,
                                                                         int64_t max_size) const {
  constexpr char kWanted[] = "an integer of 64 bits or an array of them";
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> result;
  if (!value->is_array()) {
    const std::optional<int64_t> integer = AsInteger(*value);
    if (!integer.has_value()) return WrongType(key, *value, kWanted);
    result.push_back(*integer);
    return std::optional(std::move(result));
  }
  if (static_cast<int64_t>(value->size()) > max_size) {
    return InvalidArgument("{}{} has {} elements, the limit is {}", prefix_, key, value->size(),
                           max_size);
  }
  for (const json& element : *value) {
    const std::optional<int64_t> integer = AsInteger(element);
    if (!integer.has_value()) return WrongType(key + "[]", element, "an integer of 64 bits");
    result.push_back(*integer);
  }
  return std::optional(std::move(result));
}

absl::StatusOr<std::vector<std::string>> JsonFields::Strings(const std::string& key,
                                                             int64_t max_size) const {
  std::vector<std::string> result;
  const json* const value = Find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) return WrongType(key, *value, "an array of strings");
  if (static_cast<int64_t>(value->size()) > max_size) {
    return InvalidArgument("{}{} has {} elements, the limit is {}", prefix_, key, value->size(),
                           max_size);
  }
  for (const json& element : *value) {
    if (!element.is_string()) return WrongType(key + "[]", element, "a string");
    result.push_back(element.get<std::string>());
  }
  return result;
}

absl::StatusOr<std::optional<JsonFields>> JsonFields::Object(const std::string& key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<JsonFields>();
  if (!value->is_object()) return WrongType(key, *value, "an object");
  return std::optional<JsonFields>(JsonFields(*value, prefix_ + key + "."));
}

absl::StatusOr<int64_t> JsonFields::Dimension(const std::string& key, int64_t limit) const {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(key));
  if (!value.has_value()) return InvalidArgument("{}{} is missing", prefix_, key);
  if (*value < 1 || *value > limit) {
    return InvalidArgument("{}{} is {}, it must be between 1 and {}", prefix_, key, *value, limit);
  }
  return *value;
}

absl::StatusOr<int64_t> JsonFields::Dimension(const std::string& key, int64_t limit,
                                              int64_t otherwise) const {
  if (!Has(key)) return otherwise;
  return Dimension(key, limit);
}

}  // namespace tlm
