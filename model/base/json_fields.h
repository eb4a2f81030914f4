// Typed access to the members of an untrusted JSON object.
#ifndef TLM_MODEL_BASE_JSON_FIELDS_H_
#define TLM_MODEL_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// INVALID_ARGUMENT "model.vocab is 3, it must be an object", where `name` is "model.vocab". The
// message shows only the kind of a container.
absl::Status WrongJsonType(std::string_view name, const nlohmann::json& value,
                           std::string_view wanted);

// Reads members of one JSON object, which must outlive it. A member that is null counts as absent.
// Every error is INVALID_ARGUMENT and names the key (after the object's name), the value and the
// allowed values.
class JsonFields {
 public:
  // With kHidden, messages have "a string" instead of the string, which may be a secret.
  enum class StringValues { kShown, kHidden };

  // Messages put `prefix` before every key: "rope_scaling.", or "" for the outermost object.
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "",
                      StringValues strings = StringValues::kShown);

  // Opens a value that messages call `name`; INVALID_ARGUMENT unless it is an object.
  static absl::StatusOr<JsonFields> Open(const nlohmann::json& value, const std::string& name,
                                         StringValues strings = StringValues::kShown);

  // Returns the member, or nullptr when it is absent.
  const nlohmann::json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // True if the member is null; false if it is missing.
  bool IsNull(std::string_view key) const;
  bool IsObject(std::string_view key) const;
  // Returns all keys in order, also of members that are null.
  std::vector<std::string> Keys() const;
  // Returns the member's name in messages.
  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  // Returns the prefix of this object's keys in messages.
  const std::string& prefix() const { return prefix_; }

  // These return nullopt when the member is absent.
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  // A finite number, with or without a fraction.
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  // A number without a fraction or an exponent that fits 64 bits.
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view key) const;
  // One integer, or an array of at most `max_size` integers.
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(std::string_view key,
                                                               int64_t max_size) const;
  // Returns the strings of an array of at most `max_size`; empty when the member is absent.
  absl::StatusOr<std::vector<std::string>> Strings(std::string_view key, int64_t max_size) const;
  absl::StatusOr<std::optional<JsonFields>> Object(std::string_view key) const;

  // These return `otherwise` when the member is absent.
  absl::StatusOr<bool> Bool(std::string_view key, bool otherwise) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string_view otherwise) const;

  // These members are required.
  absl::StatusOr<std::string> RequiredString(std::string_view key) const;
  absl::StatusOr<JsonFields> RequiredObject(std::string_view key) const;
  absl::StatusOr<const nlohmann::json*> RequiredArray(std::string_view key) const;

  // Returns a dimension: an integer in [1, limit]. It is required.
  absl::StatusOr<int64_t> Dimension(std::string_view key, int64_t limit) const;
  // Returns `otherwise` when the member is absent.
  absl::StatusOr<int64_t> Dimension(std::string_view key, int64_t limit, int64_t otherwise) const;

  absl::Status WrongType(std::string_view key, const nlohmann::json& value,
                         std::string_view wanted) const;
  absl::Status Missing(std::string_view key) const;

 private:
  absl::Status CheckSize(std::string_view key, const nlohmann::json& array, int64_t max_size) const;

  const nlohmann::json* object_;
  std::string prefix_;
  StringValues strings_;
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_JSON_FIELDS_H_
