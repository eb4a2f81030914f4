// Where the references of a JSON Schema document lead.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/constraint/json/json_document.h"

namespace tlm {

// What the document says of its own version; without `$schema` the newest.
enum class SchemaDraft { kDraft4, kDraft6, kDraft7, k2019, k2020 };

// The schemas of one document by URI. Nothing is fetched: a reference leads to a place in the
// document or nowhere. Immutable.
class SchemaIndex {
 public:
  // A schema and the URI that its own `$id` is relative to.
  struct Place {
    const JsonValue* value = nullptr;
    std::string base;
    std::string pointer;  // where it stands in the document, for messages: "/$defs/a"
  };

  // `root` outlives it. INVALID_ARGUMENT for a draft that is not known.
  static absl::StatusOr<SchemaIndex> Build(const JsonValue& root);

  SchemaDraft draft() const { return draft_; }
  Place root() const;
  // `$id` of `value` applied to the base of what it stands in.
  std::string BaseOf(const JsonValue& value, const std::string& outer) const;
  // INVALID_ARGUMENT if it leads to no place in the document.
  absl::StatusOr<Place> Resolve(std::string_view reference, const std::string& base) const;
  // As Resolve, for `$dynamicRef`: INVALID_ARGUMENT also where several places could be meant.
  absl::StatusOr<Place> ResolveDynamic(std::string_view reference, const std::string& base) const;

 private:
  explicit SchemaIndex(const JsonValue& root) : root_(&root) {}
  absl::Status SetDraft();
  void Add(const Place& place);
  void AddChildren(const JsonValue& value, const Place& parent, std::string_view keyword);

  const JsonValue* root_;
  SchemaDraft draft_ = SchemaDraft::k2020;
  absl::flat_hash_map<std::string, Place> by_uri_;    // of resources, without fragment
  absl::flat_hash_map<std::string, Place> anchored_;  // "uri#anchor"
  absl::flat_hash_map<std::string, int> dynamic_;     // how many resources have a dynamic anchor
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_
