// Resolves the references of a JSON Schema document.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/constraint/json/json_document.h"

namespace tlm {

// The version that `$schema` names; the newest if there is no `$schema`.
enum class SchemaDraft { kDraft4, kDraft6, kDraft7, k2019, k2020 };

// The schemas of one document by URI. Nothing is fetched: a reference leads to a place in the
// document or nowhere. Immutable.
class SchemaIndex {
 public:
  // A schema and the URI that its own `$id` is relative to.
  struct Place {
    const JsonValue* value = nullptr;
    std::string base;
    std::string pointer;  // JSON pointer in the document, for messages: "/$defs/a"
  };

  // `root` must outlive the index. INVALID_ARGUMENT for an unknown draft.
  static absl::StatusOr<SchemaIndex> Build(const JsonValue& root);

  SchemaDraft draft() const { return draft_; }
  Place root() const;
  // The base URI of `value`: its `$id`, resolved against the base `outer` of the schema around it.
  std::string BaseOf(const JsonValue& value, const std::string& outer) const;
  // INVALID_ARGUMENT if the reference leads to no place in the document.
  absl::StatusOr<Place> Resolve(std::string_view reference, const std::string& base) const;
  // Like Resolve, for `$dynamicRef`. INVALID_ARGUMENT also if several places could be meant.
  absl::StatusOr<Place> ResolveDynamic(std::string_view reference, const std::string& base) const;

 private:
  explicit SchemaIndex(const JsonValue& root) : root_(&root) {}
  absl::Status SetDraft();
  void Add(const Place& place);
  void AddChildren(const JsonValue& value, const Place& parent, std::string_view keyword);

  const JsonValue* root_;
  SchemaDraft draft_ = SchemaDraft::k2020;
  absl::flat_hash_map<std::string, Place> by_uri_;    // resources by URI without fragment
  absl::flat_hash_map<std::string, Place> anchored_;  // by "uri#anchor"
  absl::flat_hash_map<std::string, int> dynamic_;     // number of resources by dynamic anchor
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_INDEX_H_
