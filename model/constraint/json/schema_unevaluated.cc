#include "model/constraint/json/schema_unevaluated.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr size_t kMaxEvaluationCases = 64;
// The longest chain of subschemas and references.
constexpr int kMaxEvaluationDepth = 32;
// Budget for a subschema, and for each name, pattern and formula of a case.
constexpr int64_t kStepsPerSchema = 20;
constexpr int64_t kStepsPerEntry = 2;

// The properties or items that a schema evaluates if `when` is true.
struct Evaluated {
  Formula when = kTrue;
  bool all = false;
  std::vector<std::string> names = {};       // names of properties
  std::vector<ByteRegex> patterns = {};      // patterns of names of properties
  size_t first_items = 0;                    // number of items at the beginning of an array
  std::vector<Formula> matching_items = {};  // `contains`: items that satisfy one of these
};
// For each value, `when` is true in at least one of the cases.
using Cases = std::vector<Evaluated>;

class EvaluationReader {
 public:
  using Place = SchemaIndex::Place;

  EvaluationReader(UnevaluatedKind kind, const UnevaluatedContext& context)
      : kind_(kind), context_(context), formulas_(context.formulas) {}

  // What the keywords of `schema` evaluate, except the unevaluated keywords. The base of `schema`
  // already includes its own `$id`.
  absl::StatusOr<Cases> ReadKeywords(const Place& schema, int depth);

 private:
  // What the whole schema at `place` evaluates.
  absl::StatusOr<Cases> ReadSchemaAt(Place place, int depth);
  absl::StatusOr<Evaluated> ReadAdjacentItems(const Place& schema);
  absl::StatusOr<Evaluated> ReadAdjacentProperties(const Place& schema);
  absl::Status ReadReferences(const Place& schema, int depth, Cases& cases);
  absl::Status ReadLogic(const Place& schema, int depth, Cases& cases);
  absl::Status ReadCondition(const Place& schema, int depth, Cases& cases);
  // Adds to `cases` what the schema at `place` evaluates.
  absl::Status Add(const Place& place, int depth, Cases& cases);
  // Like Add, but the schema evaluates only values for which `when` is true. `when` must imply the
  // schema.
  absl::Status AddWhere(Formula when, const Place& place, int depth, Cases& cases);
  // All combinations of a case of `a` and a case of `b`. `b` comes from the schema at `place`.
  absl::StatusOr<Cases> Product(const Cases& a, const Cases& b, const Place& place);

  const UnevaluatedKind kind_;
  const UnevaluatedContext& context_;
  FormulaSet& formulas_;
};

SchemaIndex::Place ChildOf(const SchemaIndex::Place& schema, const JsonValue& child,
                           const std::string& below) {
  return {&child, schema.base, schema.pointer + below};
}

std::string_view KeywordOf(UnevaluatedKind kind) {
  return kind == UnevaluatedKind::kItems ? "unevaluatedItems" : "unevaluatedProperties";
}

absl::StatusOr<Cases> EvaluationReader::ReadSchemaAt(Place place, int depth) {
  TLM_RETURN_IF_ERROR(context_.budget.Spend(kStepsPerSchema, place.pointer));
  if (depth > kMaxEvaluationDepth) {
    return InvalidArgument(
        "depends on subschemas that contain themselves, or on more than {} in one another",
        kMaxEvaluationDepth);
  }
  if (!place.value->is_object()) return Cases(1);
  place.base = context_.index.BaseOf(*place.value, place.base);
  TLM_ASSIGN_OR_RETURN(Cases cases, ReadKeywords(place, depth));
  if (place.value->Find(KeywordOf(kind_)) != nullptr) {
    for (Evaluated& evaluated : cases) evaluated.all = true;
  }
  return cases;
}

absl::StatusOr<Evaluated> EvaluationReader::ReadAdjacentItems(const Place& schema) {
  Evaluated here;
  const JsonValue* first = schema.value->Find("prefixItems");
  const JsonValue* others = schema.value->Find("items");
  if (others != nullptr && others->is_array()) {
    first = others;
    others = schema.value->Find("additionalItems");
  }
  if (first != nullptr) here.first_items = first->items.size();
  here.all = others != nullptr;
  if (const JsonValue* contains = schema.value->Find("contains");
      contains != nullptr && context_.contains_evaluates) {
    TLM_ASSIGN_OR_RETURN(const Formula item,
                         context_.read(ChildOf(schema, *contains, "/contains")));
    here.matching_items.push_back(item);
  }
  return here;
}

absl::StatusOr<Evaluated> EvaluationReader::ReadAdjacentProperties(const Place& schema) {
  Evaluated here;
  here.all = schema.value->Find("additionalProperties") != nullptr;
  if (const JsonValue* properties = schema.value->Find("properties")) {
    for (const auto& [name, child] : properties->members) here.names.push_back(name);
  }
  if (const JsonValue* patterns = schema.value->Find("patternProperties")) {
    for (const auto& [pattern, child] : patterns->members) {
      TLM_ASSIGN_OR_RETURN(const ByteRegex regex, context_.read_pattern(schema, pattern));
      here.patterns.push_back(regex);
    }
  }
  return here;
}

absl::StatusOr<Cases> EvaluationReader::Product(const Cases& a, const Cases& b,
                                                const Place& place) {
  if (a.size() * b.size() > kMaxEvaluationCases) {
    return ResourceExhausted("depends on more than {} combinations of subschemas",
                             kMaxEvaluationCases);
  }
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  Cases product;
  for (const Evaluated& first : a) {
    for (const Evaluated& second : b) {
      Evaluated both = first;
      both.when = formulas_.And(first.when, second.when);
      both.all = first.all || second.all;
      append(both.names, second.names);
      append(both.patterns, second.patterns);
      both.first_items = std::max(first.first_items, second.first_items);
      append(both.matching_items, second.matching_items);
      const size_t entries =
          both.names.size() + both.patterns.size() + both.matching_items.size() + 1;
      TLM_RETURN_IF_ERROR(
          context_.budget.Spend(kStepsPerEntry * static_cast<int64_t>(entries), place.pointer));
      product.push_back(std::move(both));
    }
  }
  return product;
}

absl::Status EvaluationReader::Add(const Place& place, int depth, Cases& cases) {
  TLM_ASSIGN_OR_RETURN(const Cases inside, ReadSchemaAt(place, depth + 1));
  TLM_ASSIGN_OR_RETURN(cases, Product(cases, inside, place));
  return absl::OkStatus();
}

absl::Status EvaluationReader::AddWhere(Formula when, const Place& place, int depth, Cases& cases) {
  TLM_ASSIGN_OR_RETURN(Cases inside, ReadSchemaAt(place, depth + 1));
  for (Evaluated& evaluated : inside) evaluated.when = formulas_.And(evaluated.when, when);
  inside.push_back({.when = formulas_.Not(when)});
  TLM_ASSIGN_OR_RETURN(cases, Product(cases, inside, place));
  return absl::OkStatus();
}

absl::Status EvaluationReader::ReadReferences(const Place& schema, int depth, Cases& cases) {
  for (const std::string_view keyword : {"$ref", "$dynamicRef"}) {
    const JsonValue* reference = schema.value->Find(keyword);
    if (reference == nullptr) continue;
    TLM_ASSIGN_OR_RETURN(const Place target, context_.index.Resolve(reference->text, schema.base));
    TLM_RETURN_IF_ERROR(Add(target, depth, cases));
  }
  return absl::OkStatus();
}

absl::Status EvaluationReader::ReadLogic(const Place& schema, int depth, Cases& cases) {
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.value->Find(keyword);
    if (list == nullptr) continue;
    for (size_t i = 0; i < list->items.size(); ++i) {
      const Place child =
          ChildOf(schema, list->items[i], "/" + std::string(keyword) + "/" + std::to_string(i));
      if (keyword == "allOf") {
        TLM_RETURN_IF_ERROR(Add(child, depth, cases));
      } else {
        TLM_ASSIGN_OR_RETURN(const Formula when, context_.read(child));
        TLM_RETURN_IF_ERROR(AddWhere(when, child, depth, cases));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status EvaluationReader::ReadCondition(const Place& schema, int depth, Cases& cases) {
  const JsonValue* condition = schema.value->Find("if");
  if (condition == nullptr) return absl::OkStatus();
  const Place place = ChildOf(schema, *condition, "/if");
  TLM_ASSIGN_OR_RETURN(const Formula when, context_.read(place));
  TLM_RETURN_IF_ERROR(AddWhere(when, place, depth, cases));
  for (const std::string_view keyword : {"then", "else"}) {
    const JsonValue* branch = schema.value->Find(keyword);
    if (branch == nullptr) continue;
    TLM_RETURN_IF_ERROR(AddWhere(keyword == "then" ? when : formulas_.Not(when),
                                 ChildOf(schema, *branch, "/" + std::string(keyword)), depth,
                                 cases));
  }
  return absl::OkStatus();
}

absl::StatusOr<Cases> EvaluationReader::ReadKeywords(const Place& schema, int depth) {
  TLM_ASSIGN_OR_RETURN(Evaluated here, kind_ == UnevaluatedKind::kItems
                                           ? ReadAdjacentItems(schema)
                                           : ReadAdjacentProperties(schema));
  Cases cases = {std::move(here)};
  TLM_RETURN_IF_ERROR(ReadReferences(schema, depth, cases));
  TLM_RETURN_IF_ERROR(ReadLogic(schema, depth, cases));
  TLM_RETURN_IF_ERROR(ReadCondition(schema, depth, cases));
  if (const JsonValue* dependent = schema.value->Find("dependentSchemas")) {
    for (const auto& [name, child] : dependent->members) {
      TLM_RETURN_IF_ERROR(AddWhere(formulas_.HasProperty(name),
                                   ChildOf(schema, child, "/dependentSchemas/" + name), depth,
                                   cases));
    }
  }
  return cases;
}

// The values whose properties or items that are not evaluated satisfy `rest`.
Formula ApplyToOthers(const Evaluated& evaluated, UnevaluatedKind kind, Formula rest,
                      FormulaSet& formulas) {
  if (evaluated.all) return kTrue;
  if (kind == UnevaluatedKind::kItems) {
    ItemRule rule = {.first = std::vector<Formula>(evaluated.first_items, kTrue), .others = rest};
    for (const Formula item : evaluated.matching_items) {
      rule.others = formulas.Or(rule.others, item);
    }
    return formulas.Of(
        {.kind = Atom::Kind::kItems, .items = std::make_shared<const ItemRule>(std::move(rule))});
  }
  PropertyRule rule = {.others = rest};
  for (const std::string& name : evaluated.names) {
    if (rule.by_name.emplace(name, kTrue).second) rule.named.emplace_back(name, kTrue);
  }
  for (const ByteRegex pattern : evaluated.patterns) rule.patterns.emplace_back(pattern, kTrue);
  return formulas.Of({.kind = Atom::Kind::kProperties,
                      .properties = std::make_shared<const PropertyRule>(std::move(rule))});
}

}  // namespace

absl::StatusOr<Formula> ReadUnevaluated(const SchemaIndex::Place& schema, UnevaluatedKind kind,
                                        Formula rest, const UnevaluatedContext& context) {
  if (rest == kTrue) return kTrue;
  TLM_ASSIGN_OR_RETURN(const Cases cases,
                       EvaluationReader(kind, context).ReadKeywords(schema, /*depth=*/0));
  std::vector<Formula> any;
  for (const Evaluated& evaluated : cases) {
    any.push_back(context.formulas.And(evaluated.when,
                                       ApplyToOthers(evaluated, kind, rest, context.formulas)));
  }
  return context.formulas.Or(any);
}

}  // namespace tlm
