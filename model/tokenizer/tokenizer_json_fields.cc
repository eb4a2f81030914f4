#include "model/tokenizer/tokenizer_json_fields.h"

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

using nlohmann::json;

// What stands in the file, for messages; a container by its kind alone.
std::string Describe(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace

const json* FindMember(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::Status WrongJsonType(std::string_view where, std::string_view key, const json& value,
                           std::string_view wanted) {
  return InvalidArgument("{}{} is {}, it must be {}", where, key, Describe(value), wanted);
}

absl::StatusOr<bool> ReadBool(const json& object, std::string_view where, std::string_view key,
                              bool otherwise) {
  const json* const value = FindMember(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return WrongJsonType(where, key, *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<size_t> ReadCount(const json& object, std::string_view where, std::string_view key,
                                 size_t max) {
  const json* const value = FindMember(object, key);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned() || value->get<uint64_t>() > max) {
    return WrongJsonType(where, key, *value, fmt::format("an integer between 0 and {}", max));
  }
  return value->get<size_t>();
}

absl::StatusOr<std::string> ReadString(const json& object, std::string_view where,
                                       std::string_view key) {
  const json* const value = FindMember(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return WrongJsonType(where, key, *value, "a string");
  return value->get<std::string>();
}

absl::StatusOr<const json*> ReadObject(const json& object, std::string_view where,
                                       std::string_view key) {
  const json* const value = FindMember(object, key);
  if (value == nullptr) return InvalidArgument("{}{} is missing", where, key);
  if (!value->is_object()) return WrongJsonType(where, key, *value, "an object");
  return value;
}

absl::StatusOr<const json*> ReadArray(const json& object, std::string_view where,
                                      std::string_view key) {
  const json* const value = FindMember(object, key);
  if (value == nullptr) return InvalidArgument("{}{} is missing", where, key);
  if (!value->is_array()) return WrongJsonType(where, key, *value, "an array");
  return value;
}

absl::StatusOr<int32_t> ReadTokenId(const json& value, std::string_view name) {
  const bool is_valid =
      value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenIds);
  if (!is_valid) {
    return WrongJsonType("", name, value,
                         fmt::format("an integer between 0 and {}", kMaxTokenIds - 1));
  }
  return static_cast<int32_t>(value.get<uint64_t>());
}

}  // namespace tlm
