#include "model/base/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

using nlohmann::json;

constexpr char kAnInteger[] = "an integer of 64 bits";

std::optional<int64_t> AsInteger(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::string Describe(const json& value, JsonFields::StringValues strings) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (!value.is_string()) return value.dump();
  return strings == JsonFields::StringValues::kShown ? Quoted(value.get_ref<const std::string&>())
                                                     : "a string";
}

absl::Status WrongType(std::string_view name, const json& value, std::string_view wanted,
                       JsonFields::StringValues strings) {
  return InvalidArgument("{} is {}, it must be {}", name, Describe(value, strings), wanted);
}

template <typename T>
absl::StatusOr<T> ValueOr(absl::StatusOr<std::optional<T>> read, T otherwise) {
  if (!read.ok()) return std::move(read).status();
  return (*std::move(read)).value_or(std::move(otherwise));
}

}  // namespace

absl::Status WrongJsonType(std::string_view name, const json& value, std::string_view wanted) {
  return WrongType(name, value, wanted, JsonFields::StringValues::kShown);
}

JsonFields::JsonFields(const json& object, std::string prefix, StringValues strings)
    : object_(&object), prefix_(std::move(prefix)), strings_(strings) {}

absl::StatusOr<JsonFields> JsonFields::Open(const json& value, const std::string& name,
                                            StringValues strings) {
  if (!value.is_object()) return tlm::WrongType(name, value, "an object", strings);
  return JsonFields(value, name + ".", strings);
}

const json* JsonFields::Find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::IsNull(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

bool JsonFields::IsObject(std::string_view key) const {
  const json* const value = Find(key);
  return value != nullptr && value->is_object();
}

std::vector<std::string> JsonFields::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) keys.push_back(key);
  return keys;
}

absl::Status JsonFields::WrongType(std::string_view key, const json& value,
                                   std::string_view wanted) const {
  return tlm::WrongType(Name(key), value, wanted, strings_);
}

absl::Status JsonFields::Missing(std::string_view key) const {
  return InvalidArgument("{}{} is missing", prefix_, key);
}

absl::Status JsonFields::CheckSize(std::string_view key, const json& array,
                                   int64_t max_size) const {
  if (static_cast<int64_t>(array.size()) <= max_size) return absl::OkStatus();
  return InvalidArgument("{}{} has {} elements, the limit is {}", prefix_, key, array.size(),
                         max_size);
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return WrongType(key, *value, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return WrongType(key, *value, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<std::optional<double>> JsonFields::Number(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return WrongType(key, *value, "a finite number");
  }
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Integer(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> integer = AsInteger(*value);
  if (!integer.has_value()) return WrongType(key, *value, kAnInteger);
  return integer;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> JsonFields::Integers(std::string_view key,
                                                                         int64_t max_size) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> result;
  if (!value->is_array()) {
    const std::optional<int64_t> integer = AsInteger(*value);
    if (!integer.has_value()) {
      return WrongType(key, *value, "an integer of 64 bits or an array of them");
    }
    result.push_back(*integer);
    return std::optional(std::move(result));
  }
  TLM_RETURN_IF_ERROR(CheckSize(key, *value, max_size));
  for (const json& element : *value) {
    const std::optional<int64_t> integer = AsInteger(element);
    if (!integer.has_value()) return WrongType(std::string(key) + "[]", element, kAnInteger);
    result.push_back(*integer);
  }
  return std::optional(std::move(result));
}

absl::StatusOr<std::vector<std::string>> JsonFields::Strings(std::string_view key,
                                                             int64_t max_size) const {
  std::vector<std::string> result;
  const json* const value = Find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) return WrongType(key, *value, "an array of strings");
  TLM_RETURN_IF_ERROR(CheckSize(key, *value, max_size));
  for (const json& element : *value) {
    if (!element.is_string()) return WrongType(std::string(key) + "[]", element, "a string");
    result.push_back(element.get<std::string>());
  }
  return result;
}

absl::StatusOr<std::optional<JsonFields>> JsonFields::Object(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return std::optional<JsonFields>();
  TLM_ASSIGN_OR_RETURN(JsonFields fields, Open(*value, Name(key), strings_));
  return std::optional<JsonFields>(std::move(fields));
}

absl::StatusOr<bool> JsonFields::Bool(std::string_view key, bool otherwise) const {
  return ValueOr(Bool(key), otherwise);
}

absl::StatusOr<std::string> JsonFields::String(std::string_view key,
                                               std::string_view otherwise) const {
  return ValueOr(String(key), std::string(otherwise));
}

absl::StatusOr<std::string> JsonFields::RequiredString(std::string_view key) const {
  if (!Has(key)) return Missing(key);
  return String(key, "");
}

absl::StatusOr<JsonFields> JsonFields::RequiredObject(std::string_view key) const {
  TLM_ASSIGN_OR_RETURN(std::optional<JsonFields> object, Object(key));
  if (!object.has_value()) return Missing(key);
  return *std::move(object);
}

absl::StatusOr<const json*> JsonFields::RequiredArray(std::string_view key) const {
  const json* const value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_array()) return WrongType(key, *value, "an array");
  return value;
}

absl::StatusOr<int64_t> JsonFields::Dimension(std::string_view key, int64_t limit) const {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Integer(key));
  if (!value.has_value()) return Missing(key);
  if (*value < 1 || *value > limit) {
    return InvalidArgument("{}{} is {}, it must be between 1 and {}", prefix_, key, *value, limit);
  }
  return *value;
}

absl::StatusOr<int64_t> JsonFields::Dimension(std::string_view key, int64_t limit,
                                              int64_t otherwise) const {
  if (!Has(key)) return otherwise;
  return Dimension(key, limit);
}

}  // namespace tlm
