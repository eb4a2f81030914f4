// Parses template source into its syntax tree.
#ifndef TLM_MODEL_JINJA_PARSER_H_
#define TLM_MODEL_JINJA_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"

namespace tlm::jinja {

// INVALID_ARGUMENT for syntax errors and sources beyond the limits, UNIMPLEMENTED for constructs of
// Jinja that are not supported; both name the line.
absl::StatusOr<Block> ParseTemplate(std::string_view source);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_PARSER_H_
