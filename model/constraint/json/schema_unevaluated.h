// The keywords `unevaluatedProperties` and `unevaluatedItems` of JSON Schema.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCHEMA_UNEVALUATED_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCHEMA_UNEVALUATED_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/schema_formula.h"
#include "model/constraint/json/schema_index.h"

namespace tlm {

enum class UnevaluatedKind { kProperties, kItems };

// What the keywords need of the reader of the document. All of it outlives the call.
struct UnevaluatedContext {
  using Place = SchemaIndex::Place;

  const SchemaIndex& index;
  FormulaSet& formulas;
  Budget& budget;
  bool contains_evaluates;  // items that match `contains`; 2020-12 says so
  // The values that the schema at a place allows.
  absl::FunctionRef<absl::StatusOr<Formula>(const Place&)> read;
  // The names that a pattern of `patternProperties` of the schema at a place matches.
  absl::FunctionRef<absl::StatusOr<ByteRegex>(const Place&, std::string_view pattern)> read_pattern;
};

// The values whose unevaluated properties or items are as `rest` says. A property or item is
// evaluated if a keyword beside this one, or a keyword in a subschema that the value matches,
// applies a schema to it (JSON Schema Core 2020-12, sections 11.2 and 11.3). `schema` holds the
// keyword; its base is that of its own `$id`.
//
// INVALID_ARGUMENT where subschemas that evaluate contain themselves or are too deep in one
// another; RESOURCE_EXHAUSTED for too many combinations of those that may match, and above the
// budget.
absl::StatusOr<Formula> ReadUnevaluated(const SchemaIndex::Place& schema, UnevaluatedKind kind,
                                        Formula rest, const UnevaluatedContext& context);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_UNEVALUATED_H_
