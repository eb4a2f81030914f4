// Statements to text.
#ifndef TLM_MODEL_JINJA_INTERPRETER_H_
#define TLM_MODEL_JINJA_INTERPRETER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/evaluator.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// One rendering of a template. Errors name the line they come from, but for those that the template
// raises itself.
class Interpreter {
 public:
  // Both outlive this. `variables` are those the template does not set itself; their names live as
  // long as this.
  Interpreter(Heap* heap, const std::vector<std::pair<std::string, Value>>& variables);

  absl::StatusOr<std::string> Render(const Block& block);

  // The text that a macro, which was defined in `closure`, makes of its arguments.
  absl::StatusOr<Value> CallMacro(const MacroDefinition& macro, const ScopePtr& closure,
                                  Arguments arguments);

  // How a statement ends: with the next one, or leaving the loop around it.
  enum class Flow { kNext, kBreak, kContinue };

  // One kind of statement each, for std::visit.
  class Executor;

 private:
  absl::StatusOr<Flow> Execute(const Block& block, const ScopePtr& scope);
  absl::Status Append(std::string_view text);

  // Executes `block` into `*text` instead of the output.
  absl::StatusOr<Flow> Capture(const Block& block, const ScopePtr& scope, std::string* text);

  // The parameters of a macro, and `caller`, in its body's scope.
  absl::Status BindArguments(const MacroDefinition& macro, Arguments arguments,
                             const ScopePtr& scope);

  Heap* const heap_;
  const ScopePtr root_;
  std::string* out_ = nullptr;
  size_t out_bytes_ = 0;  // of the output and of all captures under way
  int macro_depth_ = 0;
  bool located_ = false;  // whether an error under way already names its line
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_INTERPRETER_H_
