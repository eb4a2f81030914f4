// Nodes of the syntax tree with the depth that comes of their parts.
#ifndef TLM_MODEL_JINJA_MAKE_EXPRESSION_H_
#define TLM_MODEL_JINJA_MAKE_EXPRESSION_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/jinja/ast.h"
#include "model/jinja/token_stream.h"

namespace tlm::jinja {

inline int DepthOf(const ExpressionPtr& part) { return part == nullptr ? 0 : part->depth; }

inline int DepthOf(const std::vector<Argument>& arguments) {
  int deepest = 0;
  for (const Argument& argument : arguments) deepest = std::max(deepest, argument.value->depth);
  return deepest;
}

inline int DepthOf(const std::vector<ExpressionPtr>& parts) {
  int deepest = 0;
  for (const ExpressionPtr& part : parts) deepest = std::max(deepest, part->depth);
  return deepest;
}

// `node` over parts of which the deepest has `depth` levels.
template <typename Node>
absl::StatusOr<ExpressionPtr> Make(Node node, int line, int depth) {
  TLM_RETURN_IF_ERROR(Nesting::CheckNesting(depth + 1, line));
  return std::make_unique<const Expression>(Expression{std::move(node), line, depth + 1});
}

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_MAKE_EXPRESSION_H_
