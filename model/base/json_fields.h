// Typed access to the members of a JSON object that somebody else wrote.
#ifndef TLM_MODEL_BASE_JSON_FIELDS_H_
#define TLM_MODEL_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// Reads members of one JSON object, which must outlive it. A member that is null counts as absent.
// Every error is INVALID_ARGUMENT and names the key (with the object's own name before it), the
// value and what it should have been.
class JsonFields {
 public:
  // `prefix` goes before every key in messages: "rope_scaling.", or "" for the outermost object.
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "");

  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  // Written out as null, not left out.
  bool IsNull(const std::string& key) const;
  bool IsObject(const std::string& key) const;
  // Of all members, those that are null included, in order.
  std::vector<std::string> Keys() const;

  absl::StatusOr<std::optional<bool>> Bool(const std::string& key) const;
  absl::StatusOr<std::optional<std::string>> String(const std::string& key) const;
  // Whole numbers and others alike; finite.
  absl::StatusOr<std::optional<double>> Number(const std::string& key) const;
  // Written without a fraction or an exponent, and within 64 bits.
  absl::StatusOr<std::optional<int64_t>> Integer(const std::string& key) const;
  // An integer, or an array of at most `max_size` of them; none when absent.
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(const std::string& key,
                                                               int64_t max_size) const;
  // The strings of an array of at most `max_size`; empty when absent.
  absl::StatusOr<std::vector<std::string>> Strings(const std::string& key, int64_t max_size) const;
  // The members of an object, or none when absent.
  absl::StatusOr<std::optional<JsonFields>> Object(const std::string& key) const;

  // What goes before this object's keys in messages.
  const std::string& prefix() const { return prefix_; }

  // A dimension: an integer in [1, limit], which must be there.
  absl::StatusOr<int64_t> Dimension(const std::string& key, int64_t limit) const;
  // The same, or `otherwise` when absent.
  absl::StatusOr<int64_t> Dimension(const std::string& key, int64_t limit, int64_t otherwise) const;

 private:
  const nlohmann::json* Find(const std::string& key) const;
  absl::Status WrongType(const std::string& key, const nlohmann::json& value,
                         const char* wanted) const;

  const nlohmann::json* object_;
  std::string prefix_;
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_JSON_FIELDS_H_
