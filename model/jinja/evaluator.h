// Evaluates expressions.
#ifndef TLM_MODEL_JINJA_EVALUATOR_H_
#define TLM_MODEL_JINJA_EVALUATOR_H_

#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// The variables that a piece of a template sees. Scopes are shared because a macro keeps the scope
// of its definition. Scopes refer only to their outer scopes.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  // Returns the value of `name` in this scope or an outer one; null if no scope has it.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
      const auto found = scope->variables_.find(name);
      if (found != scope->variables_.end()) return &found->second;
    }
    return nullptr;
  }

  // `name` must live as long as the scope.
  void Set(std::string_view name, Value value) {
    variables_.insert_or_assign(name, std::move(value));
  }

 private:
  const std::shared_ptr<Scope> outer_;
  std::map<std::string_view, Value> variables_;
};
using ScopePtr = std::shared_ptr<Scope>;

// INVALID_ARGUMENT where Python or Jinja raise; RESOURCE_EXHAUSTED when a limit is reached.
absl::StatusOr<Value> Evaluate(Heap* heap, const Scope& scope, const Expression& expression);

// Evaluates an expression of kind kCall, with the argument `caller` that {% call %} adds if it is
// not null.
absl::StatusOr<Value> EvaluateCall(Heap* heap, const Scope& scope, const Expression& call,
                                   const Value* caller);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_EVALUATOR_H_
