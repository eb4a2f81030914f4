// Parses JSON and keeps what was written: the order of members, and the text of numbers.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_DOCUMENT_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_DOCUMENT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

enum class JsonKind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

struct JsonValue {
  using Member = std::pair<std::string, JsonValue>;

  JsonKind kind = JsonKind::kNull;
  bool boolean = false;
  std::string text = {};              // kNumber: as written; kString: decoded
  std::vector<JsonValue> items = {};  // kArray
  std::vector<Member> members = {};   // kObject

  bool is_object() const { return kind == JsonKind::kObject; }
  bool is_array() const { return kind == JsonKind::kArray; }
  bool is_string() const { return kind == JsonKind::kString; }
  bool is_boolean() const { return kind == JsonKind::kBoolean; }
  bool is_number() const { return kind == JsonKind::kNumber; }
  // Null if the value is not an object or has no such member. Takes linear time.
  const JsonValue* Find(std::string_view name) const;
};

// INVALID_ARGUMENT for text that is not JSON, a member that occurs twice in one object, numbers
// that no long double can hold (on x86-64: 1e4933 and above), and arrays and objects nested deeper
// than `max_depth`.
absl::StatusOr<JsonValue> ParseJsonDocument(std::string_view text, int max_depth);

// Equal values have equal texts: members sorted, numbers by value ("1.0" as "1").
std::string CanonicalJson(const JsonValue& value);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_DOCUMENT_H_
