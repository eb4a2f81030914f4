#include "model/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/builtins.h"
#include "model/jinja/expression_parser.h"
#include "model/jinja/lexer.h"
#include "model/jinja/limits.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

// The tags of Jinja that a chat template does not need.
constexpr std::string_view kUnsupportedTags[] = {"autoescape", "block", "debug",  "do",
                                                 "extends",    "from",  "import", "include",
                                                 "print",      "trans", "with"};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<Block> Parse() { return ParseBlock({}); }

 private:
  // Parses statements up to a tag named in `ends`, whose name is then the current token; up to the
  // end of the template if `ends` is empty.
  absl::StatusOr<Block> ParseBlock(Names ends) {
    Nesting nesting(&tokens_);
    TLM_RETURN_IF_ERROR(nesting.status());
    Block block;
    for (;;) {
      const Token& token = tokens_.current();
      const int line = token.line;
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() == 0) return block;
        return InvalidArgument("line {}: unexpected end of template, looking for '{}'", line,
                               *(ends.end() - 1));
      }
      if (token.kind == TokenKind::kData) {
        block.push_back({Data{tokens_.Take().text}, line});
      } else if (token.kind == TokenKind::kVariableBegin) {
        tokens_.Take();
        TLM_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseTuple());
        TLM_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd, "'}}'"));
        block.push_back({Output{std::move(value)}, line});
      } else {
        TLM_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockBegin, "a tag"));
        if (tokens_.IsAnyName(ends)) return block;
        TLM_RETURN_IF_ERROR(ParseStatement(&block));
        TLM_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd, "'%}'"));
      }
    }
  }

  // Parses the body of a tag, from the end of the tag on, and takes the name that ends it.
  absl::StatusOr<Block> ParseBody(Names ends, std::string* end = nullptr) {
    tokens_.TakeOperator(":");
    TLM_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd, "'%}'"));
    TLM_ASSIGN_OR_RETURN(Block body, ParseBlock(ends));
    std::string name = tokens_.Take().text;
    if (end != nullptr) *end = std::move(name);
    return body;
  }

  absl::Status ParseStatement(Block* block) {
    using Method = absl::Status (Parser::*)(Block*, int);
    constexpr std::pair<std::string_view, Method> kTags[] = {
        {"if", &Parser::ParseIf},
        {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCall},
        {"filter", &Parser::ParseFilter},
        {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseJump<Break>},
        {"continue", &Parser::ParseJump<Continue>}};
    const int line = tokens_.line();
    TLM_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectAnyName());
    for (const auto& [tag, parse] : kTags) {
      if (name == tag) return (this->*parse)(block, line);
    }
    if (IsAmong(kUnsupportedTags, name)) {
      return Unimplemented("line {}: tag '{}' is not supported", line, name);
    }
    return InvalidArgument("line {}: unknown tag {}", line, Quoted(name));
  }

  absl::Status ParseIf(Block* block, int line) {
    If statement;
    for (;;) {
      TLM_ASSIGN_OR_RETURN(ExpressionPtr condition,
                           expressions_.ParseTuple({.with_conditional = false}));
      std::string end;
      TLM_ASSIGN_OR_RETURN(Block body, ParseBody({"elif", "else", "endif"}, &end));
      statement.branches.emplace_back(std::move(condition), std::move(body));
      if (end == "endif") break;
      if (end == "else") {
        TLM_ASSIGN_OR_RETURN(statement.otherwise, ParseBody({"endif"}));
        break;
      }
    }
    block->push_back({std::move(statement), line});
    return absl::OkStatus();
  }

  absl::Status ParseFor(Block* block, int line) {
    For statement;
    ++loops_;
    TLM_ASSIGN_OR_RETURN(statement.target, ParseTarget({.end_name = "in"}));
    TLM_RETURN_IF_ERROR(tokens_.ExpectName("in"));
    TLM_ASSIGN_OR_RETURN(statement.items, expressions_.ParseTuple({.with_conditional = false,
                                                                   .end_name = "recursive"}));
    if (tokens_.TakeName("if")) {
      TLM_ASSIGN_OR_RETURN(statement.condition, expressions_.ParseExpression());
    }
    if (tokens_.IsName("recursive")) {
      return Unimplemented("line {}: a recursive loop is not supported", line);
    }
    ++breakable_;
    std::string end;
    TLM_ASSIGN_OR_RETURN(statement.body, ParseBody({"else", "endfor"}, &end));
    --breakable_;
    if (end == "else") {
      TLM_ASSIGN_OR_RETURN(statement.otherwise, ParseBody({"endfor"}));
    }
    --loops_;
    block->push_back({std::move(statement), line});
    return absl::OkStatus();
  }

  absl::Status ParseSet(Block* block, int line) {
    TLM_ASSIGN_OR_RETURN(Target target, ParseTarget({.with_attribute = true}));
    if (tokens_.TakeOperator("=")) {
      TLM_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseTuple());
      block->push_back({Assignment{std::move(target), std::move(value)}, line});
      return absl::OkStatus();
    }
    if (tokens_.IsOperator("|")) {
      return Unimplemented("line {}: a filter of a block assignment is not supported", line);
    }
    TLM_ASSIGN_OR_RETURN(Block body, ParseBody({"endset"}));
    block->push_back({BlockAssignment{std::move(target), std::move(body)}, line});
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Block* block, int line) {
    MacroDefinition macro;
    TLM_ASSIGN_OR_RETURN(macro.name, tokens_.ExpectAnyName());
    TLM_RETURN_IF_ERROR(ParseParameters(&macro, line));
    TLM_RETURN_IF_ERROR(ParseMacroBody(&macro, "endmacro"));
    block->push_back({std::move(macro), line});
    return absl::OkStatus();
  }

  absl::Status ParseCall(Block* block, int line) {
    CallBlock statement;
    statement.caller.name = "caller";
    if (tokens_.IsOperator("(")) TLM_RETURN_IF_ERROR(ParseParameters(&statement.caller, line));
    TLM_ASSIGN_OR_RETURN(statement.call, expressions_.ParseExpression());
    if (statement.call->kind != Expression::Kind::kCall) {
      return InvalidArgument("line {}: expected call", line);
    }
    TLM_RETURN_IF_ERROR(ParseMacroBody(&statement.caller, "endcall"));
    block->push_back({std::move(statement), line});
    return absl::OkStatus();
  }

  absl::Status ParseParameters(MacroDefinition* macro, int line) {
    auto& parameters = macro->parameters;
    TLM_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.IsOperator(")")) {
      if (!parameters.empty()) TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      TLM_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectAnyName());
      const bool repeats = std::any_of(parameters.begin(), parameters.end(),
                                       [&](const auto& other) { return other.first == name; });
      if (repeats) {
        return InvalidArgument("line {}: duplicate argument {} in macro", line, Quoted(name));
      }
      ExpressionPtr otherwise;
      if (tokens_.TakeOperator("=")) {
        TLM_ASSIGN_OR_RETURN(otherwise, expressions_.ParseExpression());
      } else if (!parameters.empty() && parameters.back().second != nullptr) {
        return InvalidArgument("line {}: non-default argument follows default argument", line);
      }
      parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    return tokens_.ExpectOperator(")");
  }

  absl::Status ParseMacroBody(MacroDefinition* macro, std::string_view end) {
    TLM_ASSIGN_OR_RETURN(macro->body, ParseFunctionBody(end));
    return absl::OkStatus();
  }

  // Parses a body in which `break` and `continue` cannot leave an outer loop.
  absl::StatusOr<Block> ParseFunctionBody(std::string_view end) {
    const int breakable = std::exchange(breakable_, 0);
    TLM_ASSIGN_OR_RETURN(Block body, ParseBody({end}));
    breakable_ = breakable;
    return body;
  }

  absl::Status ParseFilter(Block* block, int line) {
    FilterBlock statement;
    TLM_ASSIGN_OR_RETURN(statement.filtered, ExpressionParser::MakeName(kFilteredBody, line));
    do {
      TLM_ASSIGN_OR_RETURN(statement.filtered,
                           expressions_.ParseFilter(std::move(statement.filtered)));
    } while (tokens_.TakeOperator("|"));
    TLM_ASSIGN_OR_RETURN(statement.body, ParseBody({"endfilter"}));
    block->push_back({std::move(statement), line});
    return absl::OkStatus();
  }

  absl::Status ParseGeneration(Block* block, int line) {
    TLM_ASSIGN_OR_RETURN(Block body, ParseFunctionBody("endgeneration"));
    block->push_back({Generation{std::move(body)}, line});
    return absl::OkStatus();
  }

  template <typename Jump>
  absl::Status ParseJump(Block* block, int line) {
    if (breakable_ == 0) return InvalidArgument("line {}: break or continue outside a loop", line);
    block->push_back({Jump{}, line});
    return absl::OkStatus();
  }

  struct TargetOptions {
    bool with_attribute = false;  // whether namespace.attribute may be one
    std::string_view end_name = {};
  };
  // Parses one target, or several as a tuple.
  absl::StatusOr<Target> ParseTarget(const TargetOptions& options) {
    Nesting nesting(&tokens_);
    TLM_RETURN_IF_ERROR(nesting.status());
    Target tuple;
    tuple.is_tuple = true;
    bool is_tuple = false;
    for (;;) {
      if (!tuple.items.empty()) {
        if (!tokens_.TakeOperator(",")) break;
        is_tuple = true;
      }
      const bool ends = tokens_.current().kind == TokenKind::kBlockEnd || tokens_.IsOperator(")") ||
                        tokens_.IsOperator("=") ||
                        (!options.end_name.empty() && tokens_.IsName(options.end_name));
      if (ends) break;
      TLM_ASSIGN_OR_RETURN(Target item, ParseSingleTarget(options));
      tuple.items.push_back(std::move(item));
    }
    if (tuple.items.empty()) return tokens_.Unexpected("a name to assign to");
    if (!is_tuple) return std::move(tuple.items[0]);
    return tuple;
  }

  absl::StatusOr<Target> ParseSingleTarget(const TargetOptions& options) {
    if (tokens_.TakeOperator("(")) {
      TLM_ASSIGN_OR_RETURN(Target target, ParseTarget({.with_attribute = options.with_attribute}));
      TLM_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return target;
    }
    const int line = tokens_.line();
    Target target;
    TLM_ASSIGN_OR_RETURN(target.name, tokens_.ExpectAnyName());
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (IsAmong(kConstants, target.name)) {
      return InvalidArgument("line {}: can't assign to '{}'", line, target.name);
    }
    if (options.with_attribute && tokens_.TakeOperator(".")) {
      TLM_ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectAnyName());
    } else if (loops_ > 0 && target.name == "loop") {
      return InvalidArgument("line {}: can't assign to the special name 'loop' within a loop",
                             line);
    }
    return target;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;      // loops around the current token
  int breakable_ = 0;  // how many of them `break` can leave
};

}  // namespace

absl::StatusOr<Block> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return InvalidArgument("the template has {} bytes, the limit is {}", source.size(),
                           kMaxTemplateBytes);
  }
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not valid UTF-8");
  TLM_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Parse();
}

}  // namespace tlm::jinja
