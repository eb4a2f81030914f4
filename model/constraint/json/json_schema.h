// Compiles a JSON Schema to a recognizer of the documents that it allows.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/json/json_options.h"

namespace tlm {

// A text is one value that `schema` allows (ReadSchema defines which schemas are supported),
// written as Python's json.dumps and indented printers write it. White space may come after a
// comma, a colon or an opening bracket, and before a closing bracket: at most a space, or a line
// break and at most 8 blanks per level. There are at most 256 levels. A compact text has no white
// space between tokens. Characters are escaped only where JSON requires it (TextForm::kJson), or
// with `any_escapes` in any way (TextForm::kJsonAny). number_regex.h defines how numbers are
// written.
//
// A name occurs once in an object. Unless properties may come in any order, the properties that the
// schema names come first, in the schema's order.
//
// Fails as ReadSchema does, and with INVALID_ARGUMENT if no value satisfies the schema.
absl::StatusOr<std::unique_ptr<Recognizer>> CompileJsonSchema(std::string_view schema,
                                                              const JsonOptions& options,
                                                              const ConstraintLimits& limits,
                                                              Budget& budget);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_SCHEMA_H_
