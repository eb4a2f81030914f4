// JSON Schema to formulas.
#ifndef TLM_MODEL_CONSTRAINT_SCHEMA_READER_H_
#define TLM_MODEL_CONSTRAINT_SCHEMA_READER_H_

#include "absl/status/statusor.h"
#include "model/constraint/budget.h"
#include "model/constraint/json_document.h"
#include "model/constraint/regex_set.h"
#include "model/constraint/schema_formula.h"

namespace tlm {

// Arrays and objects in a schema or in a document.
inline constexpr int kMaxSchemaDepth = 128;

// The values that `schema` allows, a JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12: all
// assertions and applicators of the core, applicator, unevaluated and validation vocabularies.
// Formats are asserted where FormatRegex knows them. Unknown keywords are annotations, as the
// standard says.
//
// INVALID_ARGUMENT, naming keyword and place, for values that the standard does not allow and for
// what cannot be decided: references out of the document or to themselves, patterns as ParsePattern
// says. RESOURCE_EXHAUSTED above the budget or the limits of the two sets.
absl::StatusOr<Formula> ReadSchema(const JsonValue& schema, FormulaSet& formulas, RegexSet& regexes,
                                   Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_SCHEMA_READER_H_
