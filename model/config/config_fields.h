// Reads configurations in which a field may have several names.
#ifndef TLM_MODEL_CONFIG_CONFIG_FIELDS_H_
#define TLM_MODEL_CONFIG_CONFIG_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_fields.h"

namespace tlm {

// The names of a field, the preferred one first.
using FieldNames = std::initializer_list<const char*>;

// One spelling of a value that the file writes as a word.
template <typename Value>
struct Spelling {
  const char* text;  // lower case
  Value value;
};

// Reads like the JsonFields it wraps, which must outlive it, and remembers every name that was
// read: any other name in the file is an unknown key. If the file uses several names of one field,
// the first of them counts.
class ConfigFields {
 public:
  explicit ConfigFields(const JsonFields& json) : json_(json) {}

  // Returns the name that the file uses, or the preferred one if it uses none.
  std::string Key(FieldNames names);
  bool Has(FieldNames names) { return json_.Has(Key(names)); }

  absl::StatusOr<std::optional<bool>> Bool(FieldNames names) { return json_.Bool(Key(names)); }
  absl::StatusOr<std::optional<double>> Number(FieldNames names) {
    return json_.Number(Key(names));
  }
  absl::StatusOr<std::optional<int64_t>> Integer(FieldNames names) {
    return json_.Integer(Key(names));
  }
  // Returns an integer in [1, limit]; a missing one is an error unless `otherwise` is given.
  absl::StatusOr<int64_t> Dimension(FieldNames names, int64_t limit,
                                    std::optional<int64_t> otherwise = std::nullopt);
  // Reads a word of the list, in upper or lower case; INVALID_ARGUMENT lists the words.
  template <typename Value, size_t kWords>
  absl::StatusOr<std::optional<Value>> Word(FieldNames names,
                                            const Spelling<Value> (&spellings)[kWords]);

  // Allows names that are read elsewhere or have no effect.
  void Allow(std::span<const char* const> names);
  // INVALID_ARGUMENT when the file uses two names of one field, or a name that was neither read nor
  // allowed (the message lists these); names that start with '_' are comments.
  absl::Status RefuseUnknown() const;

  const JsonFields& json() const { return json_; }

 private:
  static std::string LowerCase(std::string text);
  absl::Status NoSuchWord(const std::string& key, const std::string& value,
                          const std::vector<std::string>& words) const;

  const JsonFields& json_;
  std::set<std::string> known_;
  std::string twice_;  // two names of one field in the file: "norm_eps and eps"
};

template <typename Value, size_t kWords>
absl::StatusOr<std::optional<Value>> ConfigFields::Word(
    FieldNames names, const Spelling<Value> (&spellings)[kWords]) {
  const std::string key = Key(names);
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> value, json_.String(key));
  if (!value.has_value()) return std::optional<Value>();
  const std::string lower = LowerCase(*value);
  std::vector<std::string> words;
  for (const Spelling<Value>& spelling : spellings) {
    if (lower == spelling.text) return std::optional<Value>(spelling.value);
    words.push_back(spelling.text);
  }
  return NoSuchWord(key, *value, words);
}

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_CONFIG_FIELDS_H_
