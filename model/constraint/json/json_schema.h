// Texts of JSON that a schema allows.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/json/json_options.h"

namespace tlm {

// The texts, one value each, of what `schema` allows (ReadSchema says what it may be), written as
// Python's json.dumps and indented printers write it: after a comma, a colon or a bracket, and
// before a closing one, at most a space, or a line break and at most 8 blanks a level, at most 256
// levels. Between the tokens of a compact text there is nothing. Characters are written as
// themselves but for escapes that must be (TextForm::kJson), or in any way (TextForm::kJsonAny,
// any_escapes); number_regex.h says how numbers are written.
//
// A name stands once in an object, and where properties come in order, those that the schema names
// come in the order in which it does, before all others.
//
// Errors are those of ReadSchema, and INVALID_ARGUMENT for a schema that no value can be as.
absl::StatusOr<std::unique_ptr<Recognizer>> CompileJsonSchema(std::string_view schema,
                                                              const JsonOptions& options,
                                                              const ConstraintLimits& limits,
                                                              Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_
