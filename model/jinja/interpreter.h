// Executes statements and collects their text.
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

// One rendering of a template. Errors name their line, except errors that the template raises
// itself.
class Interpreter {
 public:
  // `heap` and `variables` must outlive the interpreter, and so must the variables' names.
  // `variables` are those that the template does not set itself.
  Interpreter(Heap* heap, const std::vector<std::pair<std::string, Value>>& variables);

  absl::StatusOr<std::string> Render(const Block& block);

  // Returns the text of a macro, which was defined in `closure`, for its arguments.
  absl::StatusOr<Value> CallMacro(const MacroDefinition& macro, const ScopePtr& closure,
                                  Arguments arguments);

  // Where execution continues after a statement: at the next one, or out of the loop around it.
  enum class Flow { kNext, kBreak, kContinue };

  // Executes each kind of statement, for std::visit.
  class Executor;

 private:
  absl::StatusOr<Flow> Execute(const Block& block, const ScopePtr& scope);
  absl::Status Append(std::string_view text);

  // Executes `block` into `*text` instead of the output.
  absl::StatusOr<Flow> Capture(const Block& block, const ScopePtr& scope, std::string* text);

  // Binds the parameters of a macro, and `caller`, in the scope of its body.
  absl::Status BindArguments(const MacroDefinition& macro, Arguments arguments,
                             const ScopePtr& scope);

  Heap* const heap_;
  const ScopePtr root_;
  std::string* out_ = nullptr;
  size_t out_bytes_ = 0;  // bytes of the output and of all open captures
  int macro_depth_ = 0;
  bool located_ = false;  // the current error already names its line
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_INTERPRETER_H_
