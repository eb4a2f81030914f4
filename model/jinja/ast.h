// The syntax tree of a template: what the parser makes and the interpreter walks. Immutable.
#ifndef TLM_MODEL_JINJA_AST_H_
#define TLM_MODEL_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/arithmetic.h"
#include "model/jinja/comparison.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// One argument of a call: value, name=value, *value or **value.
struct Argument {
  enum class Kind { kPositional, kNamed, kList, kDict };
  Kind kind;
  std::string name;
  ExpressionPtr value;
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct SequenceLiteral {
  bool is_tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
};
struct Unary {
  enum class Op { kNot, kNegate, kPosit };
  Op op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOp op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};
// a ~ b ~ c
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
// a < b <= c
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
// value if condition else otherwise (null when left out)
struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr value;
  ExpressionPtr otherwise;
};
struct AttributeOf {
  ExpressionPtr object;
  std::string name;
};
struct ItemOf {
  ExpressionPtr object;
  ExpressionPtr key;
};
// object[start:stop:step]; null where left out
struct SliceOf {
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr function;
  std::vector<Argument> arguments;
};
struct FilterCall {
  std::string name;
  std::vector<Argument> arguments;
};
struct Filtered {
  ExpressionPtr value;
  FilterCall filter;
};
// value is name(arguments)
struct Tested {
  ExpressionPtr value;
  std::string name;
  std::vector<Argument> arguments;
};

struct Expression {
  std::variant<Literal, Name, SequenceLiteral, DictLiteral, Unary, Binary, Logical, Concatenation,
               Comparison, Conditional, AttributeOf, ItemOf, SliceOf, Call, Filtered, Tested>
      node;
  int line;
  int depth;  // 1 + that of the deepest part; at most kMaxNesting
};

// What is assigned to: name, namespace.attribute, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;  // empty: the name itself
  std::vector<Target> items;
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

struct Data {
  std::string text;
};
// {{ expression }}
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null: all
  Block body;
  Block otherwise;
};
struct Assignment {
  Target target;
  ExpressionPtr value;
};
// {% set target | filters %}body{% endset %}
struct BlockAssignment {
  Target target;
  std::vector<FilterCall> filters;
  Block body;
};
// What a macro is given besides its parameters, where its body reads it.
struct SpecialNames {
  bool caller = false;   // the body of the {% call %} that calls it
  bool varargs = false;  // positional arguments beyond the parameters
  bool kwargs = false;   // named arguments that are no parameters
};
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, null: none
  SpecialNames special;
  Block body;
};
// {% call(parameters) function(arguments) %}body{% endcall %}
struct CallBlock {
  ExpressionPtr call;  // a Call
  MacroDefinition caller;
};
// {% filter filters %}body{% endfilter %}
struct FilterBlock {
  std::vector<FilterCall> filters;
  Block body;
};
// {% with a = 1 %}
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
};
// {% generation %}: marks what the assistant says; here only a scope of its own.
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Output, If, For, Assignment, BlockAssignment, MacroDefinition, CallBlock,
               FilterBlock, With, Generation, Break, Continue>
      node;
  int line;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_AST_H_
