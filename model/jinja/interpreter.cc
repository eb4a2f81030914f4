#include "model/jinja/interpreter.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/evaluator.h"
#include "model/jinja/filters.h"
#include "model/jinja/globals.h"
#include "model/jinja/iteration.h"
#include "model/jinja/limits.h"
#include "model/jinja/loop.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

using Flow = Interpreter::Flow;

// What a macro keeps alive: about as much as a scope with a few variables has.
constexpr size_t kScopeBytes = 512;

class Macro final : public Callable {
 public:
  Macro(Interpreter* interpreter, const MacroDefinition* definition, ScopePtr closure)
      : interpreter_(interpreter), definition_(definition), closure_(std::move(closure)) {}
  absl::StatusOr<Value> Call(Arguments arguments) const override {
    return interpreter_->CallMacro(*definition_, closure_, std::move(arguments));
  }

 private:
  Interpreter* const interpreter_;
  const MacroDefinition* const definition_;
  const ScopePtr closure_;
};

absl::Status Assign(Heap* heap, const Target& target, const Value& value, Scope* scope);

absl::Status AssignItems(Heap* heap, const Target& target, const Value& value, Scope* scope) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, value));
  if (items.size() > target.items.size()) {
    return InvalidArgument("too many values to unpack (expected {})", target.items.size());
  }
  if (items.size() < target.items.size()) {
    return InvalidArgument("not enough values to unpack (expected {}, got {})", target.items.size(),
                           items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    TLM_RETURN_IF_ERROR(Assign(heap, target.items[i], items[i], scope));
  }
  return absl::OkStatus();
}

absl::Status AssignAttribute(Heap* heap, const Target& target, const Value& value, Scope* scope) {
  const Value* const object = scope->Find(target.name);
  if (object == nullptr || !Is<Namespace*>(*object)) {
    return InvalidArgument("cannot assign attribute on non-namespace object");
  }
  TLM_RETURN_IF_ERROR(CheckNamespaceName(target.attribute));
  auto& attributes = std::get<Namespace*>(*object)->attributes;
  TLM_RETURN_IF_ERROR(heap->Work(attributes.size() * sizeof(Value)));
  for (auto& [name, old_value] : attributes) {
    if (name != target.attribute) continue;
    old_value = value;
    return absl::OkStatus();
  }
  attributes.emplace_back(target.attribute, value);
  return absl::OkStatus();
}

absl::Status Assign(Heap* heap, const Target& target, const Value& value, Scope* scope) {
  if (target.is_tuple) return AssignItems(heap, target, value, scope);
  if (!target.attribute.empty()) return AssignAttribute(heap, target, value, scope);
  scope->Set(target.name, value);
  return absl::OkStatus();
}

// The items of a loop with a condition, which is asked when the loop comes to them.
class ConditionIterator final : public Iterator {
 public:
  ConditionIterator(Heap* heap, std::unique_ptr<Iterator> items, const For* loop, ScopePtr outer)
      : heap_(heap), items_(std::move(items)), loop_(loop), outer_(std::move(outer)) {}
  absl::StatusOr<bool> Next(Value* item) override {
    for (;;) {
      TLM_ASSIGN_OR_RETURN(const bool more, items_->Next(item));
      if (!more) return false;
      Scope scope(outer_);
      TLM_RETURN_IF_ERROR(Assign(heap_, loop_->target, *item, &scope));
      TLM_ASSIGN_OR_RETURN(const Value passes, Evaluator(heap_, scope).Evaluate(*loop_->condition));
      if (IsTruthy(passes)) return true;
    }
  }

 private:
  Heap* const heap_;
  const std::unique_ptr<Iterator> items_;
  const For* const loop_;
  const ScopePtr outer_;
};

absl::StatusOr<Value> ApplyFilters(Heap* heap, const Scope& scope,
                                   const std::vector<FilterCall>& filters, std::string text) {
  TLM_ASSIGN_OR_RETURN(Value value, heap->MakeText(std::move(text)));
  for (const FilterCall& filter : filters) {
    TLM_ASSIGN_OR_RETURN(Arguments arguments,
                         Evaluator(heap, scope).EvaluateArguments(filter.arguments));
    TLM_ASSIGN_OR_RETURN(value, ApplyFilter(heap, filter.name, value, std::move(arguments)));
  }
  return value;
}

}  // namespace

class Interpreter::Executor {
 public:
  Executor(Interpreter* interpreter, ScopePtr scope)
      : self_(*interpreter), heap_(interpreter->heap_), scope_(std::move(scope)) {}

  absl::StatusOr<Flow> operator()(const Data& node) {
    TLM_RETURN_IF_ERROR(self_.Append(node.text));
    return Flow::kNext;
  }

  absl::StatusOr<Flow> operator()(const Output& node) {
    TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
    return Print(value);
  }

  absl::StatusOr<Flow> operator()(const If& node) {
    for (const auto& [condition, body] : node.branches) {
      TLM_ASSIGN_OR_RETURN(const Value holds, Evaluate(*condition));
      if (IsTruthy(holds)) return self_.Execute(body, scope_);
    }
    return self_.Execute(node.otherwise, scope_);
  }

  absl::StatusOr<Flow> operator()(const For& node) {
    TLM_ASSIGN_OR_RETURN(const Value source, Evaluate(*node.items));
    TLM_ASSIGN_OR_RETURN(std::unique_ptr<Iterator> items, Iterate(heap_, source));
    std::optional<int64_t> length = Length(source);
    if (node.condition != nullptr) {
      items = std::make_unique<ConditionIterator>(heap_, std::move(items), &node, scope_);
      length = std::nullopt;
    }
    TLM_ASSIGN_OR_RETURN(Loop* const loop,
                         heap_->Own(std::make_unique<Loop>(heap_, std::move(items), length)));
    bool entered = false;
    for (;; entered = true) {
      TLM_RETURN_IF_ERROR(heap_->Step());
      Value item;
      TLM_ASSIGN_OR_RETURN(const bool more, loop->Advance(&item));
      if (!more) break;
      const auto scope = std::make_shared<Scope>(scope_);
      scope->Set("loop", loop);
      TLM_RETURN_IF_ERROR(Assign(heap_, node.target, item, scope.get()));
      TLM_ASSIGN_OR_RETURN(const Flow flow, self_.Execute(node.body, scope));
      if (flow == Flow::kBreak) return Flow::kNext;
    }
    if (entered) return Flow::kNext;
    return self_.Execute(node.otherwise, std::make_shared<Scope>(scope_));
  }

  absl::StatusOr<Flow> operator()(const Assignment& node) {
    TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value));
    TLM_RETURN_IF_ERROR(Assign(heap_, node.target, value, scope_.get()));
    return Flow::kNext;
  }

  absl::StatusOr<Flow> operator()(const BlockAssignment& node) {
    const auto scope = std::make_shared<Scope>(scope_);
    std::string text;
    TLM_ASSIGN_OR_RETURN(const Flow flow, self_.Capture(node.body, scope, &text));
    if (flow != Flow::kNext) return flow;
    TLM_ASSIGN_OR_RETURN(const Value value,
                         ApplyFilters(heap_, *scope, node.filters, std::move(text)));
    TLM_RETURN_IF_ERROR(Assign(heap_, node.target, value, scope_.get()));
    return Flow::kNext;
  }

  absl::StatusOr<Flow> operator()(const MacroDefinition& node) {
    TLM_ASSIGN_OR_RETURN(const Callable* const macro,
                         heap_->Own(std::make_unique<Macro>(&self_, &node, scope_), kScopeBytes));
    scope_->Set(node.name, macro);
    return Flow::kNext;
  }

  absl::StatusOr<Flow> operator()(const CallBlock& node) {
    TLM_ASSIGN_OR_RETURN(
        const Callable* const caller,
        heap_->Own(std::make_unique<Macro>(&self_, &node.caller, scope_), kScopeBytes));
    const Value argument = caller;
    TLM_ASSIGN_OR_RETURN(
        const Value value,
        Evaluator(heap_, *scope_).EvaluateCall(std::get<Call>(node.call->node), &argument));
    return Print(value);
  }

  absl::StatusOr<Flow> operator()(const FilterBlock& node) {
    const auto scope = std::make_shared<Scope>(scope_);
    std::string text;
    TLM_ASSIGN_OR_RETURN(const Flow flow, self_.Capture(node.body, scope, &text));
    if (flow != Flow::kNext) return flow;
    TLM_ASSIGN_OR_RETURN(const Value value,
                         ApplyFilters(heap_, *scope, node.filters, std::move(text)));
    return Print(value);
  }

  absl::StatusOr<Flow> operator()(const With& node) {
    const auto scope = std::make_shared<Scope>(scope_);
    for (const auto& [target, expression] : node.assignments) {
      TLM_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
      TLM_RETURN_IF_ERROR(Assign(heap_, target, value, scope.get()));
    }
    return self_.Execute(node.body, scope);
  }

  absl::StatusOr<Flow> operator()(const Generation& node) {
    return self_.Execute(node.body, std::make_shared<Scope>(scope_));
  }

  absl::StatusOr<Flow> operator()(const Break&) { return Flow::kBreak; }
  absl::StatusOr<Flow> operator()(const Continue&) { return Flow::kContinue; }

 private:
  absl::StatusOr<Value> Evaluate(const Expression& expression) {
    return Evaluator(heap_, *scope_).Evaluate(expression);
  }

  absl::StatusOr<Flow> Print(const Value& value) {
    TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap_, value));
    TLM_RETURN_IF_ERROR(self_.Append(text->bytes));
    return Flow::kNext;
  }

  Interpreter& self_;
  Heap* const heap_;
  const ScopePtr scope_;
};

Interpreter::Interpreter(Heap* heap, const std::vector<std::pair<std::string, Value>>& variables)
    : heap_(heap), root_(std::make_shared<Scope>(nullptr)) {
  for (const auto& [name, value] : variables) root_->Set(name, value);
}

absl::StatusOr<std::string> Interpreter::Render(const Block& block) {
  std::string text;
  TLM_RETURN_IF_ERROR(Capture(block, std::make_shared<Scope>(root_), &text).status());
  return text;
}

absl::StatusOr<Value> Interpreter::CallMacro(const MacroDefinition& macro, const ScopePtr& closure,
                                             Arguments arguments) {
  if (macro_depth_ == kMaxMacroDepth) {
    return ResourceExhausted("macro {} nests deeper than the limit of {} calls", Quoted(macro.name),
                             kMaxMacroDepth);
  }
  ++macro_depth_;
  const auto scope = std::make_shared<Scope>(closure);
  std::string text;
  absl::Status status = BindArguments(macro, std::move(arguments), scope);
  if (status.ok()) status = Capture(macro.body, scope, &text).status();
  --macro_depth_;
  if (!status.ok()) return status;
  return heap_->MakeText(std::move(text));
}

absl::StatusOr<Flow> Interpreter::Execute(const Block& block, const ScopePtr& scope) {
  StackLevel level(heap_);
  TLM_RETURN_IF_ERROR(level.status());
  Executor executor(this, scope);
  for (const Statement& statement : block) {
    TLM_RETURN_IF_ERROR(heap_->Step());
    absl::StatusOr<Flow> flow = std::visit(executor, statement.node);
    if (!flow.ok()) {
      if (located_ || IsRaisedByTemplate(flow.status())) return flow;
      located_ = true;
      return WithContext(flow.status(), fmt::format("line {}", statement.line));
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Append(std::string_view text) {
  if (text.size() > kMaxOutputBytes - out_bytes_) {
    return ResourceExhausted("the rendered text takes more than the limit of {} bytes",
                             kMaxOutputBytes);
  }
  TLM_RETURN_IF_ERROR(heap_->Work(text.size()));
  *out_ += text;
  out_bytes_ += text.size();
  return absl::OkStatus();
}

absl::StatusOr<Flow> Interpreter::Capture(const Block& block, const ScopePtr& scope,
                                          std::string* text) {
  std::string* const outer = std::exchange(out_, text);
  absl::StatusOr<Flow> flow = Execute(block, scope);
  out_ = outer;
  out_bytes_ -= text->size();
  return flow;
}

absl::Status Interpreter::BindArguments(const MacroDefinition& macro, Arguments arguments,
                                        const ScopePtr& scope) {
  TLM_RETURN_IF_ERROR(BindParameters(macro, &arguments, scope));
  auto& named = arguments.named;
  if (macro.special.caller) {
    Value caller = heap_->MakeUndefined("No caller defined");
    const auto given = std::find_if(named.begin(), named.end(),
                                    [](const auto& entry) { return entry.first == "caller"; });
    if (given != named.end()) {
      caller = given->second;
      named.erase(given);
    }
    scope->Set("caller", std::move(caller));
  }
  if (macro.special.kwargs) {
    Dict::Members members;
    for (const auto& [name, value] : std::exchange(named, {})) {
      TLM_ASSIGN_OR_RETURN(Value key, heap_->MakeText(name));
      members.emplace_back(std::move(key), value);
    }
    TLM_ASSIGN_OR_RETURN(Value dict, heap_->MakeDict(std::move(members)));
    scope->Set("kwargs", std::move(dict));
  }
  if (macro.special.varargs) {
    TLM_ASSIGN_OR_RETURN(Value rest, heap_->MakeTuple(std::exchange(arguments.positional, {})));
    scope->Set("varargs", std::move(rest));
  }
  if (!named.empty()) {
    return InvalidArgument("macro '{}' takes no keyword argument {}", macro.name,
                           Quoted(named[0].first));
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("macro '{}' takes not more than {} argument(s)", macro.name,
                           macro.parameters.size());
  }
  return absl::OkStatus();
}

absl::Status Interpreter::BindParameters(const MacroDefinition& macro, Arguments* arguments,
                                         const ScopePtr& scope) {
  auto& [positional, named] = *arguments;
  size_t used = 0;
  for (const auto& [name, otherwise] : macro.parameters) {
    if (used < positional.size()) {
      scope->Set(name, std::move(positional[used++]));
      continue;
    }
    const std::string_view wanted = name;
    const auto given = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first == wanted; });
    if (given != named.end()) {
      scope->Set(name, std::move(given->second));
      named.erase(given);
    } else if (otherwise != nullptr) {
      TLM_ASSIGN_OR_RETURN(Value value, Evaluator(heap_, *scope).Evaluate(*otherwise));
      scope->Set(name, std::move(value));
    } else {
      scope->Set(name, heap_->MakeUndefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  positional.erase(positional.begin(), positional.begin() + static_cast<ptrdiff_t>(used));
  return absl::OkStatus();
}

}  // namespace tlm::jinja
