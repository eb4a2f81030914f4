// Translates the keywords `unevaluatedProperties` and `unevaluatedItems` to formulas.
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

// The parts of the schema reader that the keywords use. Everything must outlive the call.
struct UnevaluatedContext {
  using Place = SchemaIndex::Place;

  const SchemaIndex& index;
  FormulaSet& formulas;
  Budget& budget;
  bool contains_evaluates;  // items that match `contains` are evaluated, as in 2020-12
  // The values that the schema at a place allows.
  absl::FunctionRef<absl::StatusOr<Formula>(const Place&)> read;
  // The names that a pattern of `patternProperties` of the schema at a place matches.
  absl::FunctionRef<absl::StatusOr<ByteRegex>(const Place&, std::string_view pattern)> read_pattern;
};

// The values whose unevaluated properties or items satisfy `rest`. A property or item is evaluated
// if a keyword next to this one, or a keyword in a subschema that the value matches, applies a
// schema to it (JSON Schema Core 2020-12, sections 11.2 and 11.3). `schema` contains the keyword;
// its base already includes its own `$id`.
//
// INVALID_ARGUMENT if subschemas that evaluate contain themselves or are nested too deep;
// RESOURCE_EXHAUSTED if too many combinations of subschemas may match, and above the budget.
absl::StatusOr<Formula> ReadUnevaluated(const SchemaIndex::Place& schema, UnevaluatedKind kind,
                                        Formula rest, const UnevaluatedContext& context);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_UNEVALUATED_H_
