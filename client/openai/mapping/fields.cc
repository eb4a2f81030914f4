#include "client/openai/mapping/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm::openai {
namespace {

const Json& EmptyObject() {
  static const Json& empty = *new Json(Json::object());
  return empty;
}

// Sets INVALID_ARGUMENT unless there is an error already.
void SetError(Reading* reading, const std::string& name, std::string_view message) {
  if (reading->status.ok())
    reading->status = WithField(InvalidArgument("{} {}", name, message), name);
}

// nullopt unless the value is a whole number in the range of int64.
std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  // Doubles represent every whole number up to 2^53.
  constexpr double kExact = 9007199254740992.0;
  const double number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > kExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return value.dump();
}

std::vector<uint32_t> IdsOf(const Json& value, const std::string& name, size_t max_size,
                            Reading* reading) {
  std::vector<uint32_t> ids;
  if (!value.is_array()) {
    SetError(reading, name, fmt::format("is {}, it must be an array of token ids", Shown(value)));
    return ids;
  }
  if (value.size() > max_size) {
    SetError(reading, name,
             fmt::format("has {} token ids, the limit is {}", value.size(), max_size));
    return ids;
  }
  ids.reserve(value.size());
  for (const Json& element : value) {
    const std::optional<int64_t> id = WholeNumber(element);
    if (!id || *id < 0 || *id > std::numeric_limits<uint32_t>::max()) {
      SetError(reading, fmt::format("{}[{}]", name, ids.size()),
               fmt::format("is {}, it must be a token id", Shown(element)));
      return {};
    }
    ids.push_back(static_cast<uint32_t>(*id));
  }
  return ids;
}

Fields::Fields(const Json& object, std::string path, Reading* reading)
    : object_(&object), path_(std::move(path)), reading_(reading) {}

Fields Fields::Open(const Json& value, const std::string& path, Reading* reading) {
  if (value.is_object()) return Fields(value, path, reading);
  SetError(reading, path, fmt::format("is {}, it must be an object", Shown(value)));
  return Fields(EmptyObject(), path, reading);
}

std::string Fields::Name(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void Fields::Fail(std::string_view key, std::string_view message) {
  SetError(reading_, Name(key), message);
}

void Fields::WrongType(std::string_view key, const Json& value, std::string_view wanted) {
  Fail(key, fmt::format("is {}, it must be {}", Shown(value), wanted));
}

const Json* Fields::Find(std::string_view key) {
  read_.emplace(key);
  if (!ok()) return nullptr;
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::Bool(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  WrongType(key, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> Fields::String(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  WrongType(key, *value, "a string");
  return std::nullopt;
}

std::optional<std::string> Fields::OneOf(std::string_view key,
                                         std::initializer_list<std::string_view> allowed) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    auto text = value->get<std::string>();
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  }
  WrongType(key, *value, fmt::format("one of {}", fmt::join(allowed, ", ")));
  return std::nullopt;
}

std::optional<float> Fields::Float(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    WrongType(key, *value, "a number");
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (std::abs(number) <= std::numeric_limits<float>::max()) return static_cast<float>(number);
  WrongType(key, *value, "a number that a 32-bit float can hold");
  return std::nullopt;
}

std::optional<int64_t> Fields::Integer(std::string_view key, int64_t lowest, int64_t highest) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number && *number >= lowest && *number <= highest) return number;
  WrongType(key, *value, fmt::format("a whole number from {} to {}", lowest, highest));
  return std::nullopt;
}

std::optional<uint32_t> Fields::Uint32(std::string_view key, uint32_t lowest, uint32_t highest) {
  const std::optional<int64_t> number = Integer(key, lowest, highest);
  if (!number) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

std::optional<uint64_t> Fields::Bits64(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (value->is_number_integer()) return static_cast<uint64_t>(value->get<int64_t>());
  WrongType(key, *value, "a whole number of 64 bits");
  return std::nullopt;
}

std::optional<Fields> Fields::Object(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return Open(*value, Name(key), reading_);
}

const std::vector<Json>* Fields::Array(std::string_view key, size_t max_size) {
  const Json* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    WrongType(key, *value, "an array");
    return nullptr;
  }
  if (value->size() > max_size) {
    Fail(key, fmt::format("has {} elements, the limit is {}", value->size(), max_size));
    return nullptr;
  }
  return &value->get_ref<const Json::array_t&>();
}

std::vector<std::string> Fields::Strings(std::string_view key, size_t max_size) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    WrongType(key, *value, "a string or an array of strings");
    return {};
  }
  std::vector<std::string> strings;
  const std::vector<Json>* const elements = Array(key, max_size);
  if (elements == nullptr) return {};
  for (const Json& element : *elements) {
    if (!element.is_string()) {
      WrongType(fmt::format("{}[{}]", key, strings.size()), element, "a string");
      return {};
    }
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

std::vector<uint32_t> Fields::Ids(std::string_view key, size_t max_size) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  return IdsOf(*value, Name(key), max_size, reading_);
}

void Fields::NoEffect(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

void Fields::Refuse(std::string_view key, std::string_view reason, const Json& neutral) {
  const Json* value = Find(key);
  if (value == nullptr || *value == neutral) return;
  const bool empty = (value->is_array() || value->is_object()) && value->empty();
  if (empty || *value == Json(false)) return;
  Fail(key, reason);
}

void Fields::RefuseUnknown() {
  if (reading_->ignore_unknown) return;
  for (const auto& [key, value] : object_->items()) {
    if (read_.contains(key)) continue;
    std::string shown = Quoted(key);
    SetError(reading_, Name(shown.substr(1, shown.size() - 2)), "is not a field of this request");
    return;
  }
}

}  // namespace tlm::openai
