#include "model/constraint/constraint_spec.h"

namespace tlm {
namespace {

using Spec = ConstraintSpec;

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

const std::vector<std::string>& ChoicesOf(const Spec::Content& content) {
  static const std::vector<std::string> none;
  const auto* const choices = std::get_if<Spec::Choices>(&content);
  return choices == nullptr ? none : choices->texts;
}

// Calls `use` with every text of the specification.
template <typename Use>
void ForEachText(const Spec& spec, const Use& use) {
  const auto use_content = [&use](const Spec::Content& content) {
    use(TextOf(content));
    for (const std::string& choice : ChoicesOf(content)) use(choice);
  };
  if (spec.content() != nullptr) return use_content(*spec.content());
  for (const Spec::Node& node : spec.flow()->nodes) {
    for (const auto* texts : {&node.triggers, &node.leads}) {
      for (const std::string& text : *texts) use(text);
    }
    for (const Spec::Edge& edge : node.edges) {
      use(edge.begin);
      use_content(edge.content);
      use(edge.end);
    }
  }
}

// Appends numbers and texts so that different sequences have different keys.
class KeyBuilder {
 public:
  void Add(int64_t number) { key_ += std::to_string(number) + ','; }
  void Add(std::string_view text) {
    key_ += std::to_string(text.size()) + ':';
    key_ += text;
  }
  void Add(const std::vector<std::string>& texts) {
    Add(static_cast<int64_t>(texts.size()));
    for (const std::string& text : texts) Add(std::string_view(text));
  }
  void Add(const Spec::Content& content) {
    Add(static_cast<int64_t>(content.index()));
    Add(KindName(content));
    Add(TextOf(content));
    Add(ChoicesOf(content));
  }
  void Add(const Spec::Node& node) {
    for (const int64_t number :
         {int64_t{node.is_free}, int64_t{node.may_end}, int64_t{node.is_budgeted},
          int64_t{node.closing}, static_cast<int64_t>(node.edges.size())}) {
      Add(number);
    }
    Add(node.triggers);
    Add(node.leads);
    for (const Spec::Edge& edge : node.edges) {
      Add(int64_t{edge.target});
      // The field counts because error messages name it.
      for (const auto* text : {&edge.begin, &edge.end, &edge.field}) Add(std::string_view(*text));
      Add(edge.content);
    }
  }
  std::string Take() { return std::move(key_); }

 private:
  std::string key_;
};

}  // namespace

std::string_view TextOf(const Spec::Content& content) {
  return std::visit(
      Overloaded{[](const Spec::JsonSchema& kind) -> std::string_view { return kind.schema; },
                 [](const Spec::Regex& kind) -> std::string_view { return kind.pattern; },
                 [](const Spec::Grammar& kind) -> std::string_view { return kind.gbnf; },
                 [](const Spec::Custom& kind) -> std::string_view { return kind.text; },
                 [](const auto&) { return std::string_view(); }},
      content);
}

std::string_view KindName(const Spec::Content& content) {
  return std::visit(
      Overloaded{[](const Spec::JsonObject&) -> std::string_view { return "json_object"; },
                 [](const Spec::JsonSchema&) -> std::string_view { return "json_schema"; },
                 [](const Spec::Regex&) -> std::string_view { return "regex"; },
                 [](const Spec::Grammar&) -> std::string_view { return "grammar"; },
                 [](const Spec::Choices&) -> std::string_view { return "choices"; },
                 [](const Spec::Nothing&) -> std::string_view { return "nothing"; },
                 [](const Spec::Custom& kind) { return kind.kind->name; }},
      content);
}

size_t TextBytes(const ConstraintSpec& spec) {
  size_t bytes = 0;
  ForEachText(spec, [&bytes](std::string_view text) { bytes += text.size(); });
  return bytes;
}

std::string CacheKey(const ConstraintSpec& spec) {
  KeyBuilder key;
  for (const bool option :
       {spec.json.compact, spec.json.any_property_order, spec.json.any_escapes}) {
    key.Add(int64_t{option});
  }
  if (spec.content() != nullptr) {
    key.Add(*spec.content());
    return key.Take();
  }
  key.Add(int64_t{-1});
  key.Add(spec.flow()->token_budget.value_or(-1));
  for (const Spec::Node& node : spec.flow()->nodes) key.Add(node);
  return key.Take();
}

}  // namespace tlm
