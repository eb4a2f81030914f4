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

// INVALID_ARGUMENT "model.vocab is 3, it must be an object", where `name` is "model.vocab"; of
// containers the message has only the kind.
absl::Status WrongJsonType(std::string_view name, const nlohmann::json& value,
                           std::string_view wanted);

// Reads members of one JSON object, which must outlive it. A member that is null counts as absent.
// Every error is INVALID_ARGUMENT and names the key (with the object's name before it), the value
// and the allowed values.
class JsonFields {
 public:
  // Hidden: messages have "a string" instead of the string, which may be a secret.
  enum class StringValues { kShown, kHidden };

  // `prefix` goes before every key in messages: "rope_scaling.", or "" for the outermost object.
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "",
                      StringValues strings = StringValues::kShown);

  // Of a value that messages call `name`; INVALID_ARGUMENT unless it is an object.
  static absl::StatusOr<JsonFields> Open(const nlohmann::json& value, const std::string& name,
                                         StringValues strings = StringValues::kShown);

  // The member; nullptr when it is absent.
  const nlohmann::json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // The member is null, not missing.
  bool IsNull(std::string_view key) const;
  bool IsObject(std::string_view key) const;
  // Of all members, those that are null included, in order.
  std::vector<std::string> Keys() const;
  // The member's name in messages.
  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  // The prefix of this object's keys in messages.
  const std::string& prefix() const { return prefix_; }

  // These are empty when the member is absent.
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  // Whole numbers and others alike; finite.
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  // Written without a fraction or an exponent, and within 64 bits.
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view key) const;
  // An integer, or an array of at most `max_size` of them; none when absent.
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(std::string_view key,
                                                               int64_t max_size) const;
  // The strings of an array of at most `max_size`; empty when absent.
  absl::StatusOr<std::vector<std::string>> Strings(std::string_view key, int64_t max_size) const;
  absl::StatusOr<std::optional<JsonFields>> Object(std::string_view key) const;

  // The same, or `otherwise` when absent.
  absl::StatusOr<bool> Bool(std::string_view key, bool otherwise) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string_view otherwise) const;

  // Required members.
  absl::StatusOr<std::string> RequiredString(std::string_view key) const;
  absl::StatusOr<JsonFields> RequiredObject(std::string_view key) const;
  absl::StatusOr<const nlohmann::json*> RequiredArray(std::string_view key) const;

  // A dimension: an integer in [1, limit], which must be there.
  absl::StatusOr<int64_t> Dimension(std::string_view key, int64_t limit) const;
  // The same, or `otherwise` when absent.
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
