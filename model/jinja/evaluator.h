// Expressions to values.
#ifndef TLM_MODEL_JINJA_EVALUATOR_H_
#define TLM_MODEL_JINJA_EVALUATOR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/heap.h"
#include "model/jinja/scope.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// Evaluates in one scope. INVALID_ARGUMENT where Python or Jinja raise; RESOURCE_EXHAUSTED when a
// limit is reached.
class Evaluator {
 public:
  // Both outlive this.
  Evaluator(Heap* heap, const Scope& scope) : heap_(heap), scope_(scope) {}

  absl::StatusOr<Value> Evaluate(const Expression& expression);

  // The arguments of a call, *list and **dict spread out.
  absl::StatusOr<Arguments> EvaluateArguments(const std::vector<Argument>& arguments);

  // Calls `call`'s function with its arguments and what {% call %} adds to them.
  absl::StatusOr<Value> EvaluateCall(const Call& call, const Value* caller);

  // One kind of node each, for std::visit.
  absl::StatusOr<Value> operator()(const Literal& node);
  absl::StatusOr<Value> operator()(const Name& node);
  absl::StatusOr<Value> operator()(const SequenceLiteral& node);
  absl::StatusOr<Value> operator()(const DictLiteral& node);
  absl::StatusOr<Value> operator()(const Unary& node);
  absl::StatusOr<Value> operator()(const Binary& node);
  absl::StatusOr<Value> operator()(const Logical& node);
  absl::StatusOr<Value> operator()(const Concatenation& node);
  absl::StatusOr<Value> operator()(const Comparison& node);
  absl::StatusOr<Value> operator()(const Conditional& node);
  absl::StatusOr<Value> operator()(const AttributeOf& node);
  absl::StatusOr<Value> operator()(const ItemOf& node);
  absl::StatusOr<Value> operator()(const SliceOf& node);
  absl::StatusOr<Value> operator()(const Call& node);
  absl::StatusOr<Value> operator()(const Filtered& node);
  absl::StatusOr<Value> operator()(const Tested& node);

 private:
  absl::Status SpreadDict(const Value& value, Arguments* arguments);
  absl::Status AddNamed(const std::string& name, const Value& value, Arguments* arguments);

  Heap* const heap_;
  const Scope& scope_;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_EVALUATOR_H_
