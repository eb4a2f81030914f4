// The syntax tree of a template: the parser builds it and the interpreter walks it. Immutable.
#ifndef TLM_MODEL_JINJA_AST_H_
#define TLM_MODEL_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/operators.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// An operation on parts.
struct Expression {
  enum class Kind {
    kLiteral,        // value
    kName,           // name
    kList,           // [parts ...]
    kTuple,          // (parts ...)
    kDict,           // {key: value ...}: parts are keys and values in turn
    kNot,            // not part
    kNegate,         // -part
    kAnd,            // part and part
    kOr,             // part or part
    kBinary,         // part op part
    kConcatenation,  // part ~ part ~ part ...
    kComparison,     // part op part op part ...
    kConditional,    // part if part else part; the last is null if omitted
    kAttribute,      // part.name
    kItem,           // part[part]
    kSlice,          // part[part:part:part]; null if omitted
    kCall,           // part(arguments ...)
    kFilter,         // part|name(arguments ...)
    kTest,           // part is name(arguments ...)
  };
  Kind kind;
  int line;
  int depth = 0;  // 1 + the depth of the deepest part; at most kMaxNesting
  Value value = None{};
  std::string name = {};
  BinaryOp op = BinaryOp::kAdd;
  std::vector<CompareOp> comparisons = {};
  std::vector<ExpressionPtr> parts = {};
  // The arguments are the parts after the first; this holds the name of each name=value, empty for
  // positional ones.
  std::vector<std::string> argument_names = {};
};

// The left side of an assignment: name, namespace.attribute, or a tuple of targets.
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
// {% set target %}body{% endset %}
struct BlockAssignment {
  Target target;
  Block body;
};
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults; null: no default
  Block body;
};
// {% call(parameters) function(arguments) %}body{% endcall %}
struct CallBlock {
  ExpressionPtr call;  // of kind kCall
  MacroDefinition caller;
};
// {% filter filters %}body{% endfilter %}
struct FilterBlock {
  ExpressionPtr filtered;  // the filters over the name kFilteredBody
  Block body;
};
inline constexpr char kFilteredBody[] = "body of the filter block";  // no name a template can have

// {% generation %} marks the assistant's text; here it only opens a scope.
struct Generation {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Output, If, For, Assignment, BlockAssignment, MacroDefinition, CallBlock,
               FilterBlock, Generation, Break, Continue>
      node;
  int line;
};

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_AST_H_
