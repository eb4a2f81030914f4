#include "model/jinja/interpreter.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/globals.h"
#include "model/jinja/limits.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

using Flow = Interpreter::Flow;

// The memory that a macro keeps alive: about as much as a scope with a few variables.
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

// The variable `loop` and its iteration. Evaluates the condition of an item only when the loop
// reaches it, or when a template asks for later items: last, nextitem.
class Loop final : public Attributes {
 public:
  using Condition = std::function<absl::StatusOr<bool>(const Value& item)>;

  // Iterates over the items for which `condition` holds; over all if it is null.
  Loop(Heap* heap, std::span<const Value> items, Condition condition)
      : heap_(heap), items_(items), condition_(std::move(condition)) {}

  // Returns the next item; null after the last one.
  absl::StatusOr<const Value*> Advance() {
    TLM_RETURN_IF_ERROR(heap_->Step());
    TLM_ASSIGN_OR_RETURN(const size_t next, Peek());
    if (next == items_.size()) return nullptr;
    previous_ = std::exchange(current_, next);
    ahead_ = std::nullopt;
    ++index0_;
    return &items_[next];
  }

  absl::StatusOr<Value> Get(std::string_view name) override {
    if (name == "index") return index0_ + 1;
    if (name == "index0") return index0_;
    if (name == "first") return index0_ == 0;
    if (name == "previtem") {
      return previous_ ? items_[*previous_] : heap_->MakeUndefined("there is no previous item");
    }
    if (name == "last" || name == "nextitem") {
      TLM_ASSIGN_OR_RETURN(const size_t next, Peek());
      if (name == "last") return next == items_.size();
      return next < items_.size() ? items_[next] : heap_->MakeUndefined("there is no next item");
    }
    if (name == "length" || name == "revindex" || name == "revindex0") {
      if (condition_ != nullptr) {
        return Unimplemented("loop.{} of a loop with a condition is not supported", name);
      }
      const auto length = static_cast<int64_t>(items_.size());
      return length - (name == "length" ? 0 : name == "revindex" ? index0_ : index0_ + 1);
    }
    return Undefined{};
  }

 private:
  // Returns the index of the next item; the size after the last one.
  absl::StatusOr<size_t> Peek() {
    if (ahead_) return *ahead_;
    size_t next = current_ ? *current_ + 1 : 0;
    for (; condition_ != nullptr && next < items_.size(); ++next) {
      TLM_RETURN_IF_ERROR(heap_->Step());
      TLM_ASSIGN_OR_RETURN(const bool holds, condition_(items_[next]));
      if (holds) break;
    }
    ahead_ = next;
    return next;
  }

  Heap* const heap_;
  const std::span<const Value> items_;
  const Condition condition_;
  std::optional<size_t> ahead_;  // the result of Peek
  std::optional<size_t> current_;
  std::optional<size_t> previous_;
  int64_t index0_ = -1;
};

absl::Status Assign(Heap* heap, const Target& target, const Value& value, Scope* scope);

absl::Status AssignItems(Heap* heap, const Target& target, const Value& value, Scope* scope) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(value));
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

// Returns null for a loop without a condition. A template may keep `loop`, and with it this object,
// after the loop has ended.
Loop::Condition ConditionOf(Heap* heap, const For& node, const ScopePtr& outer) {
  if (node.condition == nullptr) return nullptr;
  return [heap, &node, outer](const Value& item) -> absl::StatusOr<bool> {
    Scope scope(outer);
    TLM_RETURN_IF_ERROR(Assign(heap, node.target, item, &scope));
    TLM_ASSIGN_OR_RETURN(const Value holds, Evaluate(heap, scope, *node.condition));
    return IsTruthy(holds);
  };
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
    TLM_ASSIGN_OR_RETURN(const auto items, heap_->Items(source));
    auto made = std::make_unique<Loop>(heap_, items, ConditionOf(heap_, node, scope_));
    TLM_ASSIGN_OR_RETURN(Loop* const loop, heap_->Own(std::move(made), kScopeBytes));
    bool entered = false;
    for (;; entered = true) {
      TLM_ASSIGN_OR_RETURN(const Value* const item, loop->Advance());
      if (item == nullptr) break;
      const auto scope = std::make_shared<Scope>(scope_);
      scope->Set("loop", loop);
      TLM_RETURN_IF_ERROR(Assign(heap_, node.target, *item, scope.get()));
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
    std::string text;
    TLM_ASSIGN_OR_RETURN(const Flow flow,
                         self_.Capture(node.body, std::make_shared<Scope>(scope_), &text));
    if (flow != Flow::kNext) return flow;
    TLM_ASSIGN_OR_RETURN(const Value value, heap_->MakeText(std::move(text)));
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
    TLM_ASSIGN_OR_RETURN(const Value value, EvaluateCall(heap_, *scope_, *node.call, &argument));
    return Print(value);
  }

  absl::StatusOr<Flow> operator()(const FilterBlock& node) {
    const auto scope = std::make_shared<Scope>(scope_);
    std::string text;
    TLM_ASSIGN_OR_RETURN(const Flow flow, self_.Capture(node.body, scope, &text));
    if (flow != Flow::kNext) return flow;
    TLM_ASSIGN_OR_RETURN(Value body, heap_->MakeText(std::move(text)));
    scope->Set(kFilteredBody, std::move(body));
    TLM_ASSIGN_OR_RETURN(const Value value, jinja::Evaluate(heap_, *scope, *node.filtered));
    return Print(value);
  }

  absl::StatusOr<Flow> operator()(const Generation& node) {
    return self_.Execute(node.body, std::make_shared<Scope>(scope_));
  }

  absl::StatusOr<Flow> operator()(const Break&) { return Flow::kBreak; }
  absl::StatusOr<Flow> operator()(const Continue&) { return Flow::kContinue; }

 private:
  absl::StatusOr<Value> Evaluate(const Expression& expression) {
    return jinja::Evaluate(heap_, *scope_, expression);
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
  TLM_RETURN_IF_ERROR(level.Enter());
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
  auto& [positional, named] = arguments;
  if (positional.size() > macro.parameters.size()) {
    return InvalidArgument("macro '{}' takes not more than {} argument(s)", macro.name,
                           macro.parameters.size());
  }
  // Removes the argument `wanted` from the call and returns it.
  const auto take_named = [&](std::string_view wanted) -> std::optional<Value> {
    const auto given = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first == wanted; });
    if (given == named.end()) return std::nullopt;
    Value value = std::move(given->second);
    named.erase(given);
    return value;
  };
  scope->Set("caller", heap_->MakeUndefined("No caller defined"));
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    if (i < positional.size()) {
      scope->Set(name, std::move(positional[i]));
    } else if (std::optional<Value> given = take_named(name)) {
      scope->Set(name, *std::move(given));
    } else if (otherwise != nullptr) {
      TLM_ASSIGN_OR_RETURN(Value value, Evaluate(heap_, *scope, *otherwise));
      scope->Set(name, std::move(value));
    } else {
      scope->Set(name, heap_->MakeUndefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  if (std::optional<Value> caller = take_named("caller")) scope->Set("caller", *std::move(caller));
  if (named.empty()) return absl::OkStatus();
  return InvalidArgument("macro '{}' takes no keyword argument {}", macro.name,
                         Quoted(named[0].first));
}

}  // namespace tlm::jinja
